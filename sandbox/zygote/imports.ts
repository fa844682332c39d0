/**
 * Guesses from a program's text which groups of preloads it imports.
 *
 * in   the groups; a program's bytes
 * out  how many of the groups it needs: the last that it imports, and those before
 * Invariant: the guess decides which imports are warm and nothing else. It finds the imports that name a module on
 * the line of `import` or `from`, also in a string that the program executes; where the program imports by a name that
 * it computes, every module counts whose name stands in the text. It may take a comment for an import; it misses names
 * that are made up of parts and imports after the first 256 KiB. The cost is linear in the text that is read.
 */

/** Upper bound on the bytes of a program that are read: a long text must not block the event loop. */
const MOST_BYTES = 2 ** 18

/**
 * Matches `import a.b as c, d` and `from a.b import c`. No letter, digit, `_` or dot may precede the keyword, except
 * the `n` of an escaped line end.
 */
const STATEMENT = /(?:^|[^\w.]|\\n)(?:import|from)[ \t]+([^\n;#'"\\]+)/g
const COMPUTED = /\b(?:__import__|import_module)[ \t]*\((?![ \t]*['"])/
const CALL = /\b(?:__import__|import_module)[ \t]*\([ \t]*['"]([\w.]+)/g

/**
 * Makes the function that returns the number of groups that a program needs.
 * @param groups names of modules; a dotted name (`scipy.stats`) counts as its package (`scipy`)
 */
export function neededGroups(groups: readonly (readonly string[])[]): (code: Uint8Array) => number {
  const groupOf = new Map<string, number>()
  for (const [at, group] of groups.entries()) {
    for (const name of group) if (!groupOf.has(rootOf(name))) groupOf.set(rootOf(name), at + 1)
  }
  const names = [...groupOf.keys()]
  const words = new RegExp(`\\b(?:${names.join('|')})\\b`, 'g')
  return code => {
    const bytes = Buffer.from(code.buffer, code.byteOffset, Math.min(code.byteLength, MOST_BYTES))
    if (!names.some(name => bytes.includes(name))) return 0
    let needed = 0
    const text = bytes.toString('latin1')
    if (COMPUTED.test(text)) for (const [name] of text.matchAll(words)) needed = Math.max(needed, groupOf.get(name)!)
    for (const name of importedBy(text)) needed = Math.max(needed, groupOf.get(name) ?? 0)
    return needed
  }
}

/** Yields the top-level names of the modules that the text seems to import. */
function* importedBy(text: string): Generator<string> {
  for (const [, what = ''] of text.matchAll(STATEMENT)) for (const part of what.split(',')) yield rootOf(part.trim())
  for (const [, what = ''] of text.matchAll(CALL)) yield rootOf(what)
}

const rootOf = (name: string): string => /^\w*/.exec(name)![0]
