/**
 * The six pictures of docs/dashboard.md: views of the run that `troupe demo` shows, with a clock that stands still.
 *
 * in   a browser, the address of a dashboard over the demo's run        out  a PNG of each view, 1280 × 800
 * Invariant: one browser with the same fonts draws the same pixels each time: time, time zone, language and theme are
 * fixed.
 */
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { unpackRecording } from '../../../dashboard/demo/recording'
import { type Dashboard, openDashboard } from '../../../dashboard/server/openDashboard'

const recording = join(__dirname, '../../../dashboard/demo/quickstart.recording')
export const demoRun = 'quickstart-demo'

export interface Picture {
  readonly name: string
  readonly hash: string
  readonly theme: 'light' | 'dark'
  /** Selector of the element that is drawn last. */
  readonly ready: string
}

const run = `#/r/${demoRun}`
export const pictures: readonly Picture[] = [
  { name: 'overview', hash: run, theme: 'light', ready: '.charts .u-over' },
  { name: 'group', hash: `${run}/g/s0003.0002`, theme: 'light', ready: '.members td.why' },
  { name: 'trajectory', hash: `${run}/t/s0002.0000/3`, theme: 'dark', ready: '.message.judge' },
  { name: 'tokens', hash: `${run}/t/s0002.0000/3?view=tokens`, theme: 'light', ready: '.token' },
  { name: 'timeline', hash: `${run}/lanes?step=6`, theme: 'dark', ready: 'canvas.lanes' },
  { name: 'cluster', hash: `${run}/cluster`, theme: 'light', ready: '.engine' },
]

export interface Demo extends Dashboard {
  readonly bus: string
  /** Time at which the clock of the pictures stands: 41 minutes after the run's last record. */
  readonly frozenAt: number
}

/** Serves the demo's run from a temporary directory, which `close` removes. */
export async function openDemo(): Promise<Demo> {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-demo-page-'))
  await unpackRecording(readFileSync(recording), directory)
  const bus = `lmdb:${directory}`
  const dashboard = await openDashboard({ bus, port: 0, host: '127.0.0.1' })
  const answer = await fetch(`${dashboard.url}api/runs/${demoRun}`)
  const { lastAt } = (await answer.json()) as { readonly lastAt: number }
  return {
    ...{ ...dashboard, bus },
    frozenAt: lastAt + 41 * 60_000,
    async close() {
      await dashboard.close()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

/** Opens a page whose clock stands still, in a fixed time zone, language and theme. */
export async function openFrozen(browser: Browser, { frozenAt }: Demo, theme: Picture['theme']): Promise<Page> {
  const context = await browser.newContext({
    ...{ viewport: { width: 1280, height: 800 }, colorScheme: theme, timezoneId: 'UTC', locale: 'en-US' },
    ...{ deviceScaleFactor: 1, reducedMotion: 'reduce' },
  })
  const page = await context.newPage()
  await page.clock.setFixedTime(frozenAt)
  return page
}

export async function takePicture(browser: Browser, demo: Demo, picture: Picture): Promise<Buffer> {
  const page = await openFrozen(browser, demo, picture.theme)
  try {
    // Commands name the temporary directory, which is another each time; the pictures show those of the default bus.
    await page.route(/\/api\/runs(?!.*\/stream)/, async route => {
      const response = await route.fetch()
      await route.fulfill({ response, body: (await response.text()).replaceAll(` --bus ${demo.bus}`, '') })
    })
    await page.goto(`${demo.url}${picture.hash}`)
    await page.locator(picture.ready).first().waitFor()
    await page.locator('.connected.open').waitFor()
    // Charts and lanes are drawn in the frames after their elements appear.
    await page.evaluate('document.fonts.ready.then(() => new Promise(done => setTimeout(done, 300)))')
    return await page.screenshot({ animations: 'disabled', caret: 'hide' })
  } finally {
    await page.context().close()
  }
}

/** Names what decides the pixels besides the page: the browser's version and how wide its fonts draw a text. */
export async function fontsOf(browser: Browser): Promise<string> {
  const page = await browser.newPage()
  try {
    const widths = await page.evaluate(`['system-ui', 'ui-monospace', 'monospace', 'sans-serif'].map(font => {
      const context = document.createElement('canvas').getContext('2d')
      context.font = '40px ' + font
      return context.measureText('Hamburgefonstiv 0123456789 ‹›–·').width
    })`)
    return createHash('sha256')
      .update(JSON.stringify([browser.version(), widths]))
      .digest('hex')
      .slice(0, 16)
  } finally {
    await page.close()
  }
}

/** Share of pixels that differ visibly; 1 for pictures of different sizes. */
export async function shareOfDifferentPixels(browser: Browser, a: Buffer, b: Buffer): Promise<number> {
  const page = await browser.newPage()
  try {
    return (await page.evaluate(`(async () => {
      const pixels = async data => {
        const bitmap = await createImageBitmap(await (await fetch('data:image/png;base64,' + data)).blob())
        const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d')
        context.drawImage(bitmap, 0, 0)
        return context.getImageData(0, 0, bitmap.width, bitmap.height)
      }
      const [a, b] = [await pixels(${JSON.stringify(a.toString('base64'))}), await pixels(${JSON.stringify(b.toString('base64'))})]
      if (a.width !== b.width || a.height !== b.height) return 1
      let different = 0
      for (let i = 0; i < a.data.length; i += 4)
        if ([0, 1, 2].some(k => Math.abs(a.data[i + k] - b.data[i + k]) > 32)) different++
      return different / (a.data.length / 4)
    })()`)) as number
  } finally {
    await page.close()
  }
}
