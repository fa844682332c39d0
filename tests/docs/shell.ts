/**
 * Splits a shell line into simple commands, as far as the documentation needs it: quotes, pipes, `&&`, `;`, `&`, redirections, comments.
 *
 * in   one line     out  its commands in order; `pipes`: its output is the next one's input
 * Invariant: a line that needs more of a shell (variables in double quotes, substitutions) is read as plain text, never run.
 */
export interface SimpleCommand {
  readonly words: readonly string[]
  readonly pipes: boolean
}

const token = /\s+|(#.*$)|(&&|\|\||[|;&])|(\d?[<>]+)|((?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\|;&<>])+)/y

export function simpleCommands(line: string): readonly SimpleCommand[] {
  const found: SimpleCommand[] = []
  let words: string[] = []
  let redirects = false
  const end = (pipes: boolean) => {
    if (words.length > 0) found.push({ words, pipes })
    words = []
  }
  token.lastIndex = 0
  for (let at = token.exec(line); at !== null; at = token.exec(line)) {
    const [, comment, operator, redirection, word] = at
    if (comment !== undefined) break
    if (operator !== undefined) end(operator === '|')
    else if (redirection !== undefined) redirects = true
    else if (word !== undefined) {
      if (!redirects) words.push(unquoted(word))
      redirects = false
    }
  }
  if (token.lastIndex === 0 && line !== '' && words.length === 0 && found.length === 0)
    throw new Error(`not read as a shell line: ${line}`)
  end(false)
  return found
}

const unquoted = (word: string) =>
  word.replace(/'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)/g, (_, single, double, escaped) =>
    single !== undefined ? single : double !== undefined ? double.replace(/\\(["\\$`])/g, '$1') : escaped,
  )
