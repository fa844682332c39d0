/**
 * Buttons of the page in a real browser: each starts the command that stands beside it, and the dock shows what it printed.
 * Skipped with a message where Chromium is not installed.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import type { Overview } from '../../dashboard/api'
import { type Dashboard, openDashboard } from '../../dashboard/server/openDashboard'
import { systemEffects } from '../../runtime/effects'
import { describeInBrowser, openBrowser } from '../support/dashboard/browser'
import { history, saveFirstPart } from './grownHistory'

jest.setTimeout(180_000)

const inBrowser = describeInBrowser()
const { run } = history
const selected = history.records.find(({ message }) => message.type === 'group.selected')!.message
const { group } = selected as Extract<typeof selected, { type: 'group.selected' }>
/** Prints its arguments in place of `troupe`, and ends. */
const echo = [process.execPath, '-e', "console.log('called', ...process.argv.slice(1))"]

inBrowser('buttons in a browser', () => {
  let directory: string
  let dashboard: Dashboard
  let browser: Browser
  let page: Page
  let complaints: string[]

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'troupe-buttons-'))
    await saveFirstPart(directory)
    dashboard = await openDashboard({ bus: `lmdb:${directory}`, host: '127.0.0.1', port: 0, actions: echo })
    browser = await openBrowser()
  })
  beforeEach(async () => {
    complaints = []
    page = await browser.newPage({ viewport: { width: 1280, height: 1600 } })
    page.on('pageerror', error => complaints.push(error.message))
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

  const open = (path: string) => page.goto(`${dashboard.url}#token=${dashboard.actionToken}&to=/r/${run}${path}`)
  const button = (name: string) => page.getByRole('button', { name, exact: true })

  /** Clicks a button, twice if it asks, and waits until the newest action of the dock has printed `expected`. */
  async function press(name: string, expected: string, asks = false): Promise<void> {
    await button(name).click()
    if (asks) {
      const sure = button(`sure? ${name}`)
      expect(await page.locator('.dock details.action', { hasText: `called ${expected}` }).count()).toBe(0)
      await sure.click()
    }
    const newest = page.locator('.dock details.action').first()
    await newest.locator('.tag', { hasText: 'done' }).waitFor()
    await page
      .locator('.dock details.action', { hasText: `called ${expected}` })
      .first()
      .waitFor()
  }

  test('a live run is paused, drained and aborted by two clicks, and one that is cut off is resumed', async () => {
    const { lastAt } = (await (await fetch(`${dashboard.url}api/runs/${run}`)).json()) as Overview
    const now = jest.spyOn(systemEffects, 'now').mockReturnValue(lastAt + 1000)
    try {
      await open('')
      await press('run: pause: start no turn and no step, request no rollouts', `control ${run} pause`, true)
      await press('run: resume: cancel a pause or a drain', `control ${run} resume`)
      await press('run: drain: end after the steps whose rollouts are requested', `control ${run} drain`, true)
      await press('run: abort: end at once', `control ${run} abort`, true)
      now.mockReturnValue(lastAt + 3_600_000)
      await page.locator('.state.cut-off').waitFor()
      await press('run: resume it', `train --resume ${run}`, true)
    } finally {
      now.mockRestore()
    }
  })

  test('a group is scored again and asked what other selections and limits would keep', async () => {
    await open(`/g/${group}`)
    await press('run: what each selection would keep, and why', `replay roc ${group} --explain`)
    await press('run: score again with a changed reward', `replay rescore ${group}`)
    await page.getByRole('spinbutton').first().fill('3')
    await press('run: how its rollouts would end under other limits', `replay limits ${group} --turns 3`)
  })

  test('a rollout is forked before any of its turns, and compared with a sibling; the dock opens the fork', async () => {
    await open(`/t/${group}/0`)
    await press('fork here: before turn 0, and go on live', `replay fork ${group}/0 --from-turn 0 --as fork-${run}-`)
    const link = page.locator('.dock a', { hasText: `open run fork-${run}-` }).first()
    expect(await link.getAttribute('href')).toMatch(new RegExp(`^#/r/fork-${run}-[^/]+/trajectories$`))
    await press('run: compare with a sibling', `replay diff ${group}/0 ${group}/`)
  })
})
