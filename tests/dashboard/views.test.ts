/** The dashboard's views in a real browser: accessible by axe's rules in both themes, and drawn as docs/dashboard.md shows. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { describeInBrowser, openBrowser } from '../support/dashboard/browser'
import {
  type Demo,
  demoRun,
  fontsOf,
  openDemo,
  openFrozen,
  pictures,
  shareOfDifferentPixels,
  takePicture,
} from '../support/dashboard/pictures'

jest.setTimeout(120_000)

const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')
const folder = join(__dirname, '../../docs/dashboard')
const run = `#/r/${demoRun}`
/** The views without a picture, with what is drawn last. */
const others = [
  { hash: '#/', ready: 'table.list a' },
  { hash: `${run}/groups`, ready: '.row a' },
  { hash: `${run}/trajectories`, ready: '.row a' },
  { hash: `${run}/t/s0002.0000/3?view=events`, ready: '.events li' },
  { hash: `${run}/log/runs/0`, ready: '.events li' },
]

describeInBrowser()('in a browser', () => {
  let demo: Demo
  let browser: Browser

  beforeAll(async () => {
    demo = await openDemo()
    browser = await openBrowser()
  })
  afterAll(async () => {
    await browser?.close()
    await demo?.close()
  })

  test.each(['light', 'dark'] as const)('axe finds nothing to complain about in any view, %s', async theme => {
    const page = await openFrozen(browser, demo, theme)
    for (const { hash, ready } of [...pictures, ...others]) {
      await page.goto(`${demo.url}${hash}`)
      await page.locator(ready).first().waitFor()
      await page.evaluate(`${axe};undefined`)
      const found = await page.evaluate(
        'axe.run(document).then(({ violations }) => violations.map(one => [one.id, one.nodes[0].html.slice(0, 200)]))',
      )
      expect({ hash, found }).toEqual({ hash, found: [] })
    }
    await page.context().close()
  })

  test('the pictures of the documentation are those that the page draws', async () => {
    const { fonts } = JSON.parse(readFileSync(join(folder, 'drawn-by.json'), 'utf8')) as { readonly fonts: string }
    const isSame = (await fontsOf(browser)) === fonts
    // Another browser or other fonts draw other pixels: then a picture is compared with itself, drawn again.
    if (!isSame) console.warn('other fonts or another browser than those of docs/dashboard: compared with themselves')
    const different: Record<string, number> = {}
    for (const picture of pictures) {
      const drawn = await takePicture(browser, demo, picture)
      const known = isSame
        ? readFileSync(join(folder, `${picture.name}.png`))
        : await takePicture(browser, demo, picture)
      different[picture.name] = await shareOfDifferentPixels(browser, drawn, known)
    }
    expect(Object.entries(different).filter(([, share]) => share > 0.002)).toEqual([])
  })
})
