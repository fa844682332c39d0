/**
 * Formats text for terminals: colours, shares, durations.
 * Text that a model or a tool wrote must be escaped before it is printed, since it may hold control sequences.
 */

export { escapeForTerminal } from '../../runtime/escapeForTerminal'

const codes = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, blue: 34, magenta: 35, cyan: 36 } as const

/**
 * Reports on stderr that progress can no longer be shown because reading the run's log failed; the run itself goes on.
 */
export const reportUnfollowed = (error: Error): void => {
  process.stderr.write(`cannot follow the run any longer, so progress is not shown: ${error.message}\n`)
}

/** Colours text if the stream is a terminal and NO_COLOR is not set (no-color.org). */
export function painter(stream: NodeJS.WriteStream): (style: keyof typeof codes, text: string) => string {
  const on = stream.isTTY === true && !process.env.NO_COLOR
  return (style, text) => (on ? `\u001b[${codes[style]}m${text}\u001b[0m` : text)
}

/** Formats a share as a percentage; null (no share is known) gives `–`. */
export const percent = (share: number | null, digits = 1): string =>
  share === null ? '–' : `${(share * 100).toFixed(digits)} %`

/** Formats seconds: 75 → `1m15s`. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds))
  if (s < 60) return `${s}s`
  return s < 3600
    ? `${Math.floor(s / 60)}m${String(s % 60).padStart(2, '0')}s`
    : `${Math.floor(s / 3600)}h${Math.floor((s % 3600) / 60)}m`
}
