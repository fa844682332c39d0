/**
 * Asks the dashboard's server what an open page asks: it reads the run's stream, and as long as facts come it asks for
 * the overview once a second. A process of its own, so that its work is not the server's or the run's.
 *
 * in   argument: the run's address below api/; on stdin a line `watch` or `rest`
 * out  on stdout a line after each of them: the number of overviews since the last one
 */
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

const everyMs = 1000
const run = process.argv[2]!
let ending: AbortController | undefined
let answers = 0

async function ask(signal: AbortSignal): Promise<{ readonly cursor: string }> {
  const response = await fetch(run, { signal })
  if (!response.ok) throw new Error(`${run}: status ${response.status}`)
  answers++
  return (await response.json()) as { cursor: string }
}

async function watch(signal: AbortSignal): Promise<void> {
  const { cursor } = await ask(signal)
  const stream = await fetch(`${run}/stream`, { headers: { 'last-event-id': cursor }, signal })
  if (!stream.ok) throw new Error(`${run}/stream: status ${stream.status}`)
  let grown = false
  const reading = (async () => {
    for await (const _ of stream.body!) grown = true
  })()
  const asking = (async () => {
    while (!signal.aborted) {
      await sleep(everyMs, undefined, { signal })
      if (grown) {
        grown = false
        await ask(signal)
      }
    }
  })()
  await Promise.all([reading, asking])
}

createInterface({ input: process.stdin }).on('line', line => {
  ending?.abort()
  process.stdout.write(`${answers}\n`)
  answers = 0
  if (line !== 'watch') return
  ending = new AbortController()
  const { signal } = ending
  watch(signal).catch(thrown => {
    if (signal.aborted) return
    console.error(thrown)
    process.exit(1)
  })
})
