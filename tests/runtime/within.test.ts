/** Deadlines count the time in which the event loop runs: what ended while it was blocked is in time. */
import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { within } from '../../runtime/within'

const late = () => new Error('late')

function block(ms: number): void {
  const begun = performance.now()
  while (performance.now() - begun < ms);
}

test('work that ends while the event loop is blocked beyond the deadline is in time', async () => {
  const work = within(readFile(__filename, 'utf8'), 100, late)
  block(300)
  expect(await work).toContain('in time')
})

test('work that does not end is late once the event loop has run for the deadline, blocks left out', async () => {
  const begun = performance.now()
  const work = within(sleep(10_000, undefined, { ref: false }), 200, late)
  block(300)
  await expect(work).rejects.toThrow('late')
  expect(performance.now() - begun).toBeGreaterThan(450)
})
