/**
 * Commands of the documentation: lines of fenced blocks without a language, and what stands below each as its output.
 *
 * in   a page of Markdown     out  each command line with its place, its simple commands and its printed output
 * A block shows commands if a line begins with `$ ` or with a program that the pages call. In a block with `$ `, only those lines
 * are commands.
 */
import { type SimpleCommand, simpleCommands } from './shell'

export interface PageCommand {
  /** `docs/why.md:7`. */
  readonly place: string
  readonly line: string
  readonly commands: readonly SimpleCommand[]
  /** Lines below the command, up to the next one. */
  readonly output: readonly string[]
}

const programs =
  /^(npx troupe|troupe|npm|node|python|pip|docker|cp|cd|export|for|printf|echo|cat|curl|git|mkdir|MODEL_DIR=\S+)\s/

export function commandsOf(page: string, markdown: string): readonly PageCommand[] {
  const lines = markdown.split('\n')
  const found: PageCommand[] = []
  let inside: 'no' | 'text' | 'code' = 'no'
  let block: { readonly text: string; readonly number: number }[] = []
  for (const [index, text] of lines.entries()) {
    if (!text.startsWith('```')) {
      if (inside === 'text') block.push({ text, number: index + 1 })
    } else if (inside === 'no') inside = /^```(sh|bash|console)?$/.test(text) ? 'text' : 'code'
    else {
      found.push(...commandsOfBlock(page, block))
      block = []
      inside = 'no'
    }
  }
  return found
}

function commandsOfBlock(
  page: string,
  block: readonly { readonly text: string; readonly number: number }[],
): readonly PageCommand[] {
  const prompt = block.some(({ text }) => text.startsWith('$ '))
  const found: { place: string; line: string; output: string[] }[] = []
  let goesOn = false
  for (const { text, number } of block) {
    const last = found.at(-1)
    if (goesOn && last !== undefined) last.line += ` ${text.trim()}`
    else if (prompt ? text.startsWith('$ ') : programs.test(text))
      found.push({ place: `${page}:${number}`, line: text.replace(/^\$ /, ''), output: [] })
    else last?.output.push(text)
    const current = found.at(-1)
    goesOn = current !== undefined && current.output.length === 0 && current.line.endsWith('\\')
    if (goesOn) current!.line = current!.line.slice(0, -1).trimEnd()
  }
  return found.map(({ output, ...one }) => ({ ...one, output: trimmed(output), commands: simpleCommands(one.line) }))
}

function trimmed(lines: readonly string[]): readonly string[] {
  const first = lines.findIndex(line => line.trim() !== '')
  return first < 0 ? [] : lines.slice(first, lines.findLastIndex(line => line.trim() !== '') + 1)
}

/** Arguments of each call of the `troupe` command in it; an image's entry point is `troupe`, so they follow `IMAGE`. */
export const troupeCalls = ({ commands }: PageCommand): readonly (readonly string[])[] =>
  commands.flatMap(({ words }) => {
    const image = words[0] === 'docker' && words[1] === 'run' ? words.indexOf('IMAGE') : -1
    if (image > 0) return [words.slice(image + 1)]
    const at = words[0] === 'npx' ? 1 : 0
    return words[at] === 'troupe' ? [words.slice(at + 1)] : []
  })
