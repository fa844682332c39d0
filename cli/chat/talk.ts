/**
 * Reads the messages of a chat: one message, or one line after the other at a terminal.
 *
 * in   messages, signals        out  each is answered; the command's exit code
 */
import { createInterface } from 'node:readline'
import { asError } from '../../runtime/errors'
import { escapeForTerminal } from '../io/terminal'
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

/**
 * Ctrl-C ends a running answer, else forgets a half-written message, else ends the chat; the end of input ends it too.
 */
export async function talking(
  answer: Answer,
  input: NodeJS.ReadableStream = process.stdin,
  output: NodeJS.WritableStream = process.stderr,
): Promise<number> {
  output.write('a message a line; \\ at its end goes on, """ begins and ends one of many lines; Ctrl-D leaves\n')
  const terminal = createInterface({ input, output, terminal: true })
  const lines = userLines()
  let running: AbortController | undefined
  terminal.on('SIGINT', () => {
    if (running !== undefined) return running.abort()
    const isTyped = terminal.line !== ''
    if (!lines.clear() && !isTyped) return terminal.close()
    for (const name of ['e', 'u']) terminal.write(null, { ctrl: true, name }) // moves to the line's end and deletes everything before it
    ask()
  })
  const ask = () => {
    terminal.setPrompt(lines.prompt)
    terminal.prompt()
  }
  ask()
  for await (const line of terminal) {
    const text = lines.add(line)
    if (text !== undefined && text.trim() !== '') {
      running = new AbortController()
      await answer(text, running.signal).catch(thrown => {
        output.write(`${escapeForTerminal(asError(thrown).message)}\n`)
      })
      running = undefined
    }
    ask()
  }
  return 0
}
