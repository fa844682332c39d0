/**
 * How messages come to a chat: one, or a line after the other at a terminal.
 *
 * in   messages, signals        out  each is answered, and the code that the command ends with
 */
import { createInterface } from 'node:readline'
import { asError } from '../../runtime/errors'
import { escapeForTerminal } from '../terminal'
import type { Exchanged } from './exchange'
import { userLines } from './userLines'

type Answer = (text: string, signal: AbortSignal) => Promise<Exchanged>

/** The first signal ends the answer, the second the process. */
export async function answering(text: string, answer: Answer): Promise<number> {
  const stop = new AbortController()
  let code = 0
  const onSignal = (signal: NodeJS.Signals) => {
    if (code !== 0) process.exit(code)
    code = signal === 'SIGINT' ? 130 : 143
    stop.abort()
  }
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal)
  try {
    const { rollout } = await answer(text, stop.signal)
    return code !== 0 ? code : rollout.ending?.outcome === 'failed' ? 1 : 0
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal)
  }
}

/** Ctrl-C ends an answer that comes, else the chat; so does the end of input. */
export async function talking(answer: Answer): Promise<number> {
  process.stderr.write(
    'a message a line; \\ at its end goes on, """ begins and ends one of many lines; Ctrl-D leaves\n',
  )
  const terminal = createInterface({ input: process.stdin, output: process.stderr, terminal: true })
  const lines = userLines()
  let running: AbortController | undefined
  terminal.on('SIGINT', () => {
    if (running !== undefined) running.abort()
    else terminal.close()
  })
  terminal.setPrompt(lines.prompt)
  terminal.prompt()
  for await (const line of terminal) {
    const text = lines.add(line)
    if (text !== undefined && text.trim() !== '') {
      running = new AbortController()
      await answer(text, running.signal).catch(thrown => {
        process.stderr.write(`${escapeForTerminal(asError(thrown).message)}\n`)
      })
      running = undefined
    }
    terminal.setPrompt(lines.prompt)
    terminal.prompt()
  }
  return 0
}
