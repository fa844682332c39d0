/**
 * Decodes tokens as they are sampled into text that can be shown at once.
 *
 * in   tokens, a few at a time        out  the text that they add, as soon as it cannot change any more
 * Invariant: the pieces together are the text of all tokens; a character of several tokens waits for its last token.
 * Only a short window of tokens is decoded again, however many came before.
 */
export interface TokenText {
  add(tokens: Int32Array): void
  /** Resolves when the text of all added tokens has been passed to `give`. */
  end(): Promise<void>
}

const incomplete = '\ufffd'

export function tokenText(decode: (tokens: Int32Array) => Promise<string>, give: (text: string) => void): TokenText {
  const tokens: number[] = []
  /** Start of the window that is decoded again. The text of the tokens before `read` has been passed to `give`. */
  let from = 0
  let read = 0
  let working: Promise<void> | undefined

  async function catchUp(isLast: boolean): Promise<void> {
    while (read < tokens.length) {
      const upTo = tokens.length
      const [before, all] = await Promise.all([
        from === read ? '' : decode(Int32Array.from(tokens.slice(from, read))),
        decode(Int32Array.from(tokens.slice(from, upTo))),
      ])
      if (all.endsWith(incomplete) && !(isLast && upTo === tokens.length)) {
        if (upTo === tokens.length) return // the rest of the character comes with the next token
        continue
      }
      if (all.length > before.length) give(all.slice(before.length))
      from = read
      read = upTo
    }
  }

  return {
    add(more) {
      tokens.push(...more)
      working ??= catchUp(false).finally(() => {
        working = undefined
      })
    },
    async end() {
      await working
      await catchUp(true)
    },
  }
}
