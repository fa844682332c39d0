/**
 * Commands of `str_replace_editor` on the text of one file.
 *
 * in   the arguments of a call, the file's text        out  the new text, and what the model is shown; or the fault
 * Invariant: pure. A fault changes nothing. Line breaks outside the edit stay as they are in the file.
 */
export type Edited =
  | { readonly kind: 'shown'; readonly shown: string }
  | { readonly kind: 'written'; readonly text: string; readonly shown: string }
  | { readonly kind: 'fault'; readonly reason: string }

type Arguments = Readonly<Record<string, unknown>>

/** Number of lines that are shown before an edit, and of those after it. */
const around = 4

/** Applies one command to a text. @param text the file's text; undefined: there is no such file */
export function applyEdit(args: Arguments, text: string | undefined): Edited {
  const { command, path } = args
  if (command === 'create') {
    if (typeof args.file_text !== 'string') return fault('create needs file_text, a string')
    const shown = `${text === undefined ? 'created' : 'replaced'} ${path}: ${linesOf(args.file_text).length} lines`
    return { kind: 'written', text: args.file_text, shown }
  }
  if (text === undefined) return fault(`${path} does not exist`)
  switch (command) {
    case 'view':
      return view(text, args.view_range)
    case 'str_replace':
      return replace(text, args)
    case 'insert':
      return insert(text, args)
    default:
      return fault(`unknown command ${JSON.stringify(command)}; expected view, create, str_replace or insert`)
  }
}

function view(text: string, range: unknown): Edited {
  const lines = linesOf(text)
  if (range === undefined || range === null) return { kind: 'shown', shown: numbered(lines, 1) }
  const [first, last] = Array.isArray(range) ? (range as unknown[]) : []
  if (!isLine(first, 1, Math.max(1, lines.length)) || !Number.isInteger(last) || (last !== -1 && Number(last) < first))
    return fault(`view_range must be [first, last] with 1 <= first <= ${lines.length}, and last >= first or -1`)
  return { kind: 'shown', shown: numbered(lines.slice(first - 1, last === -1 ? undefined : Number(last)), first) }
}

function replace(text: string, { old_str: old, new_str: fresh = '', path }: Arguments): Edited {
  if (typeof old !== 'string' || old === '') return fault('str_replace needs old_str, a text that is not empty')
  if (typeof fresh !== 'string') return fault('new_str must be a string')
  const at = text.indexOf(old)
  if (at < 0) return fault(`old_str does not occur in ${path}`)
  const again = text.indexOf(old, at + 1)
  if (again >= 0) {
    const places = [at, again].map(place => lineAt(text, place)).join(' and ')
    return fault(`old_str occurs more than once in ${path}, in lines ${places}; add lines to it until it is unique`)
  }
  const written = text.slice(0, at) + fresh + text.slice(at + old.length)
  return { kind: 'written', text: written, shown: part(written, lineAt(text, at), linesOf(fresh).length) }
}

function insert(text: string, { insert_line: line, new_str: fresh }: Arguments): Edited {
  if (typeof fresh !== 'string') return fault('insert needs new_str, a string')
  const lines = text.split(/(?<=\n)/)
  const count = text === '' ? 0 : lines.length
  if (!isLine(line, 0, count)) return fault(`insert_line must be a whole number from 0 to ${count}`)
  const before = text === '' ? '' : lines.slice(0, line).join('')
  const after = text === '' ? '' : lines.slice(line).join('')
  const start = before === '' || before.endsWith('\n') ? before : `${before}\n`
  const written = `${start}${fresh}${fresh.endsWith('\n') ? '' : '\n'}${after}`
  return { kind: 'written', text: written, shown: part(written, line + 1, linesOf(fresh).length) }
}

/** Returns the changed lines with up to `around` lines before and after them, numbered. */
function part(text: string, line: number, count: number): string {
  const lines = linesOf(text)
  const first = Math.max(1, line - around)
  return numbered(lines.slice(first - 1, line + count - 1 + around), first)
}

const isLine = (value: unknown, least: number, most: number): value is number =>
  Number.isInteger(value) && Number(value) >= least && Number(value) <= most

/** Lines without their breaks; a break at the end begins no further line. */
const linesOf = (text: string): readonly string[] => (text === '' ? [] : text.replace(/\n$/, '').split('\n'))

const lineAt = (text: string, at: number): number => text.slice(0, at).split('\n').length

const numbered = (lines: readonly string[], first: number): string =>
  lines.map((line, at) => `${String(first + at).padStart(6)}\t${line}`).join('\n')

const fault = (reason: string): Edited => ({ kind: 'fault', reason })
