/**
 * The dashboard's page in a real browser, over a log that hostile text was written to. Skipped with a message where
 * Chromium is not installed (Debian: apt-get install chromium; elsewhere CHROMIUM=/path).
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Browser, Page } from 'playwright-core'
import type { Overview } from '../../dashboard/api'
import { type Dashboard, openDashboard } from '../../dashboard/server/openDashboard'
import { systemEffects } from '../../runtime/effects'
import { describeInBrowser, openBrowser } from '../support/dashboard/browser'
import { changed, saveHistory } from '../support/histories'
import { until } from '../support/until'
import { appendRest, history, rest, saveFirstPart } from './grownHistory'

jest.setTimeout(120_000)

const bin = join(__dirname, '../../cli/bin.js')

const inBrowser = describeInBrowser()

const { run } = history

inBrowser('in a browser', () => {
  let directory: string
  let dashboard: Dashboard
  let browser: Browser
  let page: Page
  let complaints: string[]

  const options = () => ({ bus: `lmdb:${directory}`, host: '127.0.0.1' })
  const open = (hash: string) => page.goto(`${dashboard.url}#/r/${run}${hash}`)

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'troupe-page-'))
    await saveFirstPart(directory)
    dashboard = await openDashboard({ ...options(), port: 0 })
    browser = await openBrowser()
  })
  beforeEach(async () => {
    complaints = []
    page = await browser.newPage({ viewport: { width: 1280, height: 800 } })
    page.on('pageerror', error => complaints.push(error.message))
    page.on('dialog', dialog => complaints.push(dialog.message()))
    page.on('console', message => {
      // A lost connection is the subject of a test, and every browser reports it.
      if (message.type() === 'error' && !/ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY/.test(message.text()))
        complaints.push(message.text())
    })
  })
  afterEach(async () => {
    await page.close()
    expect(complaints).toEqual([])
  })
  afterAll(async () => {
    await browser?.close()
    await dashboard?.close()
    rmSync(directory, { recursive: true, force: true })
  })

  test('a view of a run that grows faster than the server answers is shown, and follows the run', async () => {
    await page.addInitScript(() => {
      const usual = globalThis.fetch
      globalThis.fetch = (input, init) => {
        if (!String(input).endsWith('/stream')) return usual(input, init)
        const text = new TextEncoder().encode('event: facts\ndata: []\n\n')
        const body = new ReadableStream({
          start: controller => void setInterval(() => controller.enqueue(text), 200),
        })
        return Promise.resolve(new Response(body))
      }
    })
    let answers = 0
    await page.route(/\/cluster$/, async route => {
      await new Promise(resolve => setTimeout(resolve, 2500))
      await route.continue().catch(() => {}) // the page may have closed
      answers++
    })
    await open('/cluster')
    await page.locator('.engine').first().waitFor({ timeout: 15_000 })
    await until(() => answers >= 2)
  })

  test('from a curve to the groups of its step, to a group, to a rollout and its tokens; each view has its command', async () => {
    await open('')
    await page.locator('.chart canvas').first().waitFor()
    const over = page.locator('.chart', { hasText: 'Mean reward' }).locator('.u-over')
    await over.click({ position: { x: 4, y: 40 } })
    await page.waitForURL(/groups\?step=\d+/)
    await page.locator('.row .tag.selected').first().waitFor()
    await page.locator('.row a[data-move]').first().click()
    await page.locator('.members td.why').first().waitFor()
    expect(await page.locator('.command code').first().textContent()).toContain('npx troupe replay roc')
    await page.locator('.members a[data-move]').first().click()
    await page.locator('.message.model').first().waitFor()
    await page.getByRole('link', { name: 'Tokens' }).click()
    await page.locator('.token').first().waitFor()
    await page.getByRole('button', { name: 'mask' }).click()
    expect(await page.locator('.token.cool1, .token.cool2').count()).toBeGreaterThan(0)
    await page.keyboard.press('c')
    await page.locator('.engine').first().waitFor()
    await page.keyboard.press('s')
    await page.locator('canvas.lanes').waitFor()
    // The canvas is drawn in the frame after it appears.
    const isPainted = () =>
      page.evaluate(`(() => {
        const canvas = document.querySelector('canvas.lanes')
        if (canvas === null || canvas.width === 0) return false
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
        return data.some(value => value !== 0)
      })()`)
    let painted = await isPainted()
    for (let tries = 0; !painted && tries < 50; tries++) {
      await page.waitForTimeout(100)
      painted = await isPainted()
    }
    expect(painted).toBe(true)
  })

  test('what a model wrote is text: no element, no script, no link comes of it, and a long line is cut with a note', async () => {
    await open('/trajectories')
    await page.locator('.row a[data-move]').first().click()
    const written = page.locator('.message.model .written').first()
    await written.waitFor()
    const text = (await written.textContent())!
    expect(text).toContain('<script>hacked=1</script><img src=x onerror=hacked=1></textarea>')
    expect(text).toContain('\\u202e\\u0000')
    expect(text).toContain('more characters of this line]')
    expect(await page.locator('.message script, .message img, .message a[href^="javascript"]').count()).toBe(0)
    expect(await page.evaluate('typeof hacked')).toBe('undefined')
  })

  test('an export of a group opens without a server, with the same views and nothing that runs', async () => {
    const selected = history.records.find(({ message }) => message.type === 'group.selected')!.message
    const { group } = selected as Extract<typeof selected, { type: 'group.selected' }>
    const file = join(directory, 'group.html')
    const where = ['--bus', `lmdb:${directory}`, '--run', run]
    await promisify(execFile)(process.execPath, [
      bin,
      'replay',
      'export',
      group,
      '--format',
      'html',
      '--out',
      file,
      ...where,
    ])
    const address = `file://${file}#/r/${run}`
    await page.goto(`${address}/g/${group}`)
    await page.locator('.members td.why').first().waitFor()
    await page.locator('.members a[data-move]').first().click()
    await page.locator('.message.model .written').first().waitFor()
    expect(await page.locator('.message.model .written').first().textContent()).toContain('<script>hacked=1</script>')
    await page.getByRole('link', { name: 'Tokens' }).click()
    await page.locator('.token').first().waitFor()
    await page.keyboard.press('t')
    await page.locator('.row a[data-move]').first().waitFor()
    expect(await page.locator('.row').count()).toBe(
      history.records.filter(({ message }) => message.type === 'rollout.requested' && message.group === group).length,
    )
    expect(await page.evaluate('typeof hacked')).toBe('undefined')
    expect(await page.locator('.connected').textContent()).toBe('export')
  })

  test('an export of a step, of a whole run and of one trajectory opens without a server', async () => {
    const requested = history.records.flatMap(({ message }) => (message.type === 'rollout.requested' ? [message] : []))
    const exported = async (file: string, ...what: readonly string[]) => {
      const out = join(directory, file)
      const where = ['--bus', `lmdb:${directory}`, '--run', run]
      await promisify(execFile)(process.execPath, [
        ...[bin, 'replay', 'export', ...what, '--format', 'html', '--out', out],
        ...where,
      ])
      return `file://${out}`
    }
    const rows = async () => Number(await page.locator('.rows').getAttribute('aria-rowcount'))
    const step = await exported('step.html', 's0001')
    await page.goto(`${step}#/r/${run}/trajectories`)
    await page.locator('.row a[data-move]').first().waitFor()
    const ofStep = requested.filter(one => one.group.startsWith('s0001.')).length
    expect(await rows()).toBe(ofStep)
    const whole = await exported('whole.html', '--all')
    await page.goto(`${whole}#/r/${run}`)
    await page.locator('.chart').first().waitFor()
    await page.keyboard.press('t')
    await page.locator('.row a[data-move]').first().waitFor()
    expect(await rows()).toBeGreaterThan(ofStep)
    const { trajectory } = requested[0]!
    await page.goto(await exported('one.html', trajectory))
    expect(await page.locator('body').textContent()).toContain(trajectory)
    expect(await page.locator('script').count()).toBe(0)
  })

  test('a phone shows every view without scrolling sideways', async () => {
    await page.setViewportSize({ width: 390, height: 800 })
    for (const hash of ['', '/groups', '/trajectories', '/cluster', '/lanes', '/log/runs/0']) {
      await open(hash)
      await page.locator('section.pad > *').nth(1).waitFor()
      await page.waitForTimeout(200)
      expect([hash, await page.evaluate('document.documentElement.scrollWidth')]).toEqual([hash, 390])
    }
  })

  test('a run that has not written run.started yet is said to start, with nothing empty beside it', async () => {
    const early = mkdtempSync(join(tmpdir(), 'troupe-starting-'))
    await saveHistory(
      early,
      changed(history, m => (m.type === 'actor.status' || m.type === 'engine.status' ? m : null)),
    )
    const starting = await openDashboard({ bus: `lmdb:${early}`, host: '127.0.0.1', port: 0 })
    try {
      await page.goto(`${starting.url}#/r/${run}`)
      await page.getByText('The run is starting').waitFor()
      expect(await page.getByText('About this run').count()).toBe(0)
      expect(await page.getByText('it waits for nothing').count()).toBe(0)
    } finally {
      await starting.close()
      rmSync(early, { recursive: true, force: true })
    }
  })

  test('a run that dies is shown as cut off, without a new fact and without a reload', async () => {
    const { lastAt } = (await (await fetch(`${dashboard.url}api/runs/${run}`)).json()) as Overview
    const now = jest.spyOn(systemEffects, 'now').mockReturnValue(lastAt + 1000)
    try {
      await open('/groups')
      await page.locator('.state.live').waitFor()
      now.mockReturnValue(lastAt + 3_600_000)
      await page.locator('.state.cut-off').waitFor()
    } finally {
      now.mockRestore()
    }
  })

  test('a server that dies and comes back is followed on: facts written meanwhile are shown, each once', async () => {
    await open('')
    await page.locator('.connected.open').waitFor()
    const { port } = new URL(dashboard.url)
    await dashboard.close()
    await page.locator('.connected.lost').waitFor()
    await appendRest(directory)
    dashboard = await openDashboard({ ...options(), port: Number(port) })
    await page.locator('.connected.open').waitFor()
    await page.locator('.facts li').first().waitFor()
    const written = rest.records.filter(({ topic }) => ['runs', 'learner', 'trajectories'].includes(topic)).length
    // The page shows the latest 40, and counts all.
    await page.waitForTimeout(1500)
    expect(await page.locator('.facts').getAttribute('data-seen')).toBe(String(written))
    const places = await page.evaluate("[...document.querySelectorAll('.facts li')].map(li => li.textContent)")
    expect(new Set(places as string[]).size).toBe(Math.min(40, written))
  })
})
