/** Finds Chromium for the tests of the dashboard, or skips them with a message. */
import { existsSync } from 'node:fs'
import { type Browser, chromium } from 'playwright-core'

export const chromiumPath = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/google-chrome'].find(
  path => path !== undefined && existsSync(path),
)

/** `describe`, or `describe.skip` with a message if Chromium is not installed. */
export function describeInBrowser(): jest.Describe {
  if (chromiumPath !== undefined) return describe
  console.warn('Chromium is not installed, so the dashboard is not tested in a browser')
  return describe.skip
}

export const openBrowser = (): Promise<Browser> =>
  chromium.launch({ executablePath: chromiumPath!, args: ['--no-sandbox'] })
