/**
 * Reads the messages of a chat, either a single message or those that a person types at a terminal, and passes them on
 * to be answered.
 *
 * in   messages, signals        out  an answer to each message; the command's exit code
 */
import { createInterface } from 'node:readline'
import { asError } from '../../runtime/errors'
import { escapeForTerminal } from '../io/terminal'
import type { Exchanged } from './exchange'
import { userLines } from './userLines'

type Answer = (text: string, signal: AbortSignal) => Promise<Exchanged>

/**
 * Passes one message to `answer`. The first SIGINT or SIGTERM ends the answer, the second ends the process. Returns the
 * exit code: 130 or 143 after a signal, 1 if the answer failed, else 0.
 */
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
 * Passes the messages that a person types to `answer`, one after the other. Ctrl-C ends a running answer. When no
 * answer runs, Ctrl-C discards a half-written message; without such a message it ends the chat, as the end of input
 * does.
 */
export async function talking(
  answer: Answer,
  input: NodeJS.ReadableStream = process.stdin,
  output: NodeJS.WritableStream = process.stderr,
): Promise<number> {
  output.write(
    'one message per line; a line that ends with \\ continues on the next; """ begins and ends a message of many lines; Ctrl-D leaves\n',
  )
  const terminal = createInterface({ input, output, terminal: true })
  const lines = userLines()
  let running: AbortController | undefined
  terminal.on('SIGINT', () => {
    if (running !== undefined) return running.abort()
    const isTyped = terminal.line !== ''
    if (!lines.clear() && !isTyped) return terminal.close()
    for (const name of ['e', 'u']) terminal.write(null, { ctrl: true, name }) // moves the cursor to the line's end and deletes everything before it
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
