#!/usr/bin/env node
/**
 * `node tests/makeScreenshots.js ADDRESS FOLDER`: takes the pictures of docs/dashboard.md from a running `troupe demo`.
 *
 * in   the page's address        out  a PNG for each view, 1280 pixels wide
 */
const path = require('node:path')
const { chromium } = require('playwright-core')

const [address, folder] = process.argv.slice(2)
const run = '#/r/quickstart-demo'
const shots = [
  ['overview', run, 'light'],
  ['group', `${run}/g/s0003.0002`, 'light'],
  ['trajectory', `${run}/t/s0002.0000/3`, 'dark'],
  ['timeline', `${run}/lanes?step=6`, 'dark'],
]

async function main() {
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium'
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })
  try {
    for (const [name, hash, colorScheme] of shots) {
      const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme })
      await page.goto(`${address}${hash}`)
      await page.waitForLoadState('networkidle', { timeout: 3000 }).catch(() => {}) // the stream stays open
      await page.waitForTimeout(500)
      await page.screenshot({ path: path.join(folder, `${name}.png`) })
      await page.close()
    }
  } finally {
    await browser.close()
  }
}

main()
