/**
 * Prints a chat on stdout: the model's text as it arrives, a tool call's code, and its output as soon as the call ends.
 *
 * Invariant: with --json only JSON lines go to stdout; without it, text that a model or a tool wrote is escaped.
 */
import type { ToolCompleted } from '../../messages/facts'
import { escapeForTerminal, painter } from '../io/terminal'
import type { ChatView } from './exchange'
import { shownText } from './shownText'

export function chatView(json: boolean, out: NodeJS.WriteStream = process.stdout): ChatView {
  const paint = painter(out)
  const line = (value: object) => out.write(`${JSON.stringify(value)}\n`)
  const indented = (text: string, mark: string) =>
    `${escapeForTerminal(text)
      .replace(/\n+$/, '')
      .split('\n')
      .map(one => `${mark} ${one}`)
      .join('\n')}\n`
  let endsLine = true
  let text = ''
  const show = (piece: string) => {
    const escaped = escapeForTerminal(piece)
    out.write(escaped)
    endsLine = escaped.endsWith('\n')
  }
  const breakLine = () => {
    if (!endsLine) out.write('\n')
    endsLine = true
  }
  let shown = shownText(show, breakLine)
  if (json) {
    return {
      turn: () => {
        text = ''
      },
      text: piece => {
        text += piece
        line({ type: 'text', text: piece })
      },
      turnEnded: () => line({ type: 'turn', text }),
      calling: call => line({ type: 'call', tool: call.tool, arguments: call.arguments }),
      called: ({ tool, status, stdout, stderr, text: said, wallMs }) =>
        line({ type: 'result', tool, status, stdout, stderr, text: said, wallMs }),
    }
  }
  return {
    turn() {
      shown = shownText(show, breakLine)
    },
    text: piece => shown.add(piece),
    turnEnded() {
      shown.end()
      breakLine()
    },
    calling({ tool, arguments: args }) {
      breakLine()
      out.write(`${paint('cyan', `▶ ${escapeForTerminal(tool)}`)}\n`)
      out.write(indented(written(args), paint('cyan', '│')))
    },
    called(fact: ToolCompleted) {
      const style = fact.status === 'ok' ? 'green' : 'red'
      out.write(indented(fact.text, paint(style, '│')))
      const took = fact.executor === null ? '' : ` in ${fact.wallMs.toFixed(0)} ms`
      out.write(`${paint(style, `■ ${fact.status}${took}`)}\n`)
    },
  }
}

/**
 * Formats a call's arguments for people: the code as it is, then standard input and other arguments as comments.
 * Arguments without `code` are printed as JSON.
 */
function written(args: Readonly<Record<string, unknown>>): string {
  const { code, input, ...rest } = args
  if (typeof code !== 'string') return JSON.stringify(args)
  const stdin = typeof input === 'string' && input !== '' ? `\n# standard input: ${JSON.stringify(input)}` : ''
  const others = Object.keys(rest).length === 0 ? '' : `\n# ${JSON.stringify(rest)}`
  return `${code}${stdin}${others}`
}
