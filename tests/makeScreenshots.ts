/**
 * `npm run screenshots`: takes the pictures of docs/dashboard.md from the demo's run, with a
 * clock that stands still, and notes the browser and fonts that drew them (tests/dashboard/views.test.ts compares).
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { openBrowser } from './support/dashboard/browser'
import { fontsOf, openDemo, pictures, takePicture } from './support/dashboard/pictures'

async function main(): Promise<void> {
  const folder = join(__dirname, '../docs/dashboard')
  const demo = await openDemo()
  const browser = await openBrowser()
  try {
    for (const picture of pictures)
      writeFileSync(join(folder, `${picture.name}.png`), await takePicture(browser, demo, picture))
    writeFileSync(join(folder, 'drawn-by.json'), `{ "fonts": "${await fontsOf(browser)}" }\n`)
  } finally {
    await browser.close()
    await demo.close()
  }
}

void main()
