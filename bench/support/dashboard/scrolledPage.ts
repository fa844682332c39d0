/**
 * Measures the dashboard's page in a real browser while a long list is scrolled: frames, missing rows, memory.
 *
 * in   the address of a view with a list
 * out  figures; undefined if Chromium or playwright-core is not installed
 */
import { existsSync, readFileSync } from 'node:fs'
import { asError } from '../../../runtime/errors'

export interface Scrolled {
  readonly framesPerSecond: number
  /** Number of frames in which a part of the visible list had no row. */
  readonly framesWithGaps: number
  /** Private memory of the page's process, MB. */
  readonly megabytes: number
}

const seconds = 4

export async function scrolledPage(url: string): Promise<Scrolled | undefined> {
  const executablePath = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/google-chrome'].find(
    path => path !== undefined && existsSync(path),
  )
  if (executablePath === undefined) return undefined
  const playwright = loaded()
  if (playwright === undefined) return undefined
  const browser = await playwright.chromium.launch({ executablePath, args: ['--no-sandbox'] })
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 } })
    await page.goto(url)
    await page.locator('.row a').first().waitFor()
    // The script below runs in the page: it scrolls 40 rows per frame, and checks in each frame which rows are visible.
    const { frames, gaps, ms } = (await page.evaluate(`new Promise(done => {
      const list = document.querySelector('.scroller')
      const began = performance.now()
      let frames = 0, gaps = 0
      const frame = () => {
        const window = list.getBoundingClientRect()
        const rows = [...list.querySelectorAll('.row')].map(row => row.getBoundingClientRect())
        const top = Math.min(...rows.map(one => one.top)), bottom = Math.max(...rows.map(one => one.bottom))
        frames++
        if (top > window.top + 1 || bottom < window.bottom - 1) gaps++
        const ms = performance.now() - began
        if (ms > ${seconds * 1000}) return done({ frames, gaps, ms })
        list.scrollTop += 40 * 34
        requestAnimationFrame(frame)
      }
      requestAnimationFrame(frame)
    })`)) as { readonly frames: number; readonly gaps: number; readonly ms: number }
    const session = await browser.newBrowserCDPSession()
    const { processInfo } = (await session.send('SystemInfo.getProcessInfo')) as {
      readonly processInfo: readonly { readonly type: string; readonly id: number }[]
    }
    const ofPages = processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => privateMegabytes(id))
    return { framesPerSecond: (frames * 1000) / ms, framesWithGaps: gaps, megabytes: Math.max(...ofPages) }
  } finally {
    await browser.close()
  }
}

/** Loads playwright-core; undefined without it. It is a development dependency, which an installed Troupe lacks. */
function loaded(): typeof import('playwright-core') | undefined {
  try {
    return require('playwright-core') as typeof import('playwright-core')
  } catch (thrown) {
    if (/Cannot find module/.test(asError(thrown).message)) return undefined
    throw thrown
  }
}

const privateMegabytes = (pid: number): number =>
  (Number(/^RssAnon:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? Number.NaN) * 1024) / 1e6
