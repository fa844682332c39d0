/**
 * A run with its page, watched in a real browser as a new user would: `train --dashboard`, from the first seconds to the end;
 * then a failed rollout is found, opened and forked from `troupe dashboard --allow-actions`.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { endAll, type Running, troupe } from '../support/cli'
import { describeInBrowser, openBrowser } from '../support/dashboard/browser'
import { smallRun } from '../support/smallRun'
import { until } from '../support/until'

jest.setTimeout(600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-dashboard-'))
const bus = `lmdb:${directory}`
const started: Running[] = []
const start = (args: readonly string[]): Running => {
  const run = troupe(args)
  started.push(run)
  return run
}
/** The address that a command prints. */
async function addressOf(run: Running): Promise<string> {
  const printed = () => /dashboard: (http\S+)/.exec(run.said())?.[1]
  await until(() => printed() !== undefined, 60_000, 100)
  return printed()!
}

describeInBrowser()('a run and its page', () => {
  let browser: Browser
  let page: Page
  const complaints: string[] = []

  beforeAll(async () => {
    browser = await openBrowser()
    page = await browser.newPage({ viewport: { width: 1280, height: 800 } })
    page.on('pageerror', error => complaints.push(error.message))
    page.setDefaultTimeout(120_000)
  })
  afterAll(async () => {
    await browser?.close()
    await endAll(started)
    rmSync(directory, { recursive: true, force: true })
  })

  test('`train --dashboard` is followed live to its end, and says meanwhile what it waits for', async () => {
    const args = ['--steps', '2', '--run', 'r', '--bus', bus, '--dashboard', '0', ...smallRun(300)]
    const run = start(['train', 'quickstart', '--json', ...args])
    await page.goto(await addressOf(run))
    await page.locator('.state.live').waitFor()
    // The cold start, or the optimizer step after it: each takes seconds.
    await page.locator('.wait summary', { hasText: /step [01] has waited/ }).waitFor()
    const seen = new Set<string>()
    const step = page.locator('.figure', { hasText: /^step/ }).first().locator('dd')
    // The page of `train --dashboard` ends with the run, so its last state may be seen or not: the next test sees it.
    const isOver = run.done.then(() => 'over' as const)
    for (let over: 'over' | undefined; over === undefined; ) {
      seen.add((await step.textContent().catch(() => null)) ?? '')
      over = await Promise.race([isOver, page.waitForTimeout(200).then(() => undefined)])
    }
    expect(await run.done).toMatchObject({ code: 0 })
    // A busy machine may go from the first step to the second between two updates of the page.
    expect([...seen]).toContain('0 of 2')
    expect(['1 of 2', '2 of 2'].some(later => seen.has(later))).toBe(true)
    expect(complaints).toEqual([])
  })

  test('a failed rollout is found, opened, understood and forked: the fork is a run of its own', async () => {
    const dashboard = start(['dashboard', '--bus', bus, '--port', '0', '--allow-actions'])
    await page.goto(await addressOf(dashboard))
    await page.getByRole('link', { name: 'r', exact: true }).click()
    await page.locator('.state.done').waitFor()
    await page.getByRole('link', { name: 'Trajectories' }).click()
    await page.getByLabel('purpose').selectOption('train')
    await page.getByLabel('reward', { exact: true }).selectOption({ label: 'reward ≤ 0' })
    await page
      .locator('.row', { hasText: /kept|dropped/ })
      .first()
      .getByRole('link')
      .first()
      .click()
    await page.locator('.message.judge .tag.bad').waitFor()
    expect(await page.locator('.verdict').textContent()).toMatch(/^(kept|dropped|rejected)/)
    await page.getByRole('button', { name: /^fork here: before turn 0/ }).click()
    await page.locator('.dock .action.done').waitFor()
    expect(await page.locator('.dock').textContent()).toMatch(/npx troupe replay fork \S+ --from-turn 0/)
    await page.getByRole('link', { name: /^open run fork-r-/ }).click()
    await page.locator('.row', { hasText: 'fork' }).first().waitFor()
    expect(complaints).toEqual([])
    dashboard.process.kill('SIGTERM')
    expect(await dashboard.done).toMatchObject({ code: 143 })
  })
})
