/**
 * Decodes tokens as they are sampled into text that can be shown at once.
 *
 * in   tokens, a few at a time        out  the text that they add, as soon as it cannot change any more
 * Invariant: the pieces together are the text of all tokens; a character of several tokens waits for its last token.
 * With the bytes of each token, text is given at once. Without them the renderer decodes a short window of tokens again,
 * however many came before.
 */

/** Bytes of a vocabulary: those of token i end before `ends[i]` and begin where those of token i - 1 end. */
export interface TokenBytes {
  readonly bytes: Uint8Array
  readonly ends: Int32Array
}

export interface TokenText {
  add(tokens: Int32Array): void
  /** Passes on the rest, an incomplete character as U+FFFD. Resolves when `give` has the text of all added tokens. */
  end(): Promise<void>
}

const incomplete = '\ufffd'

/** @param table the vocabulary's bytes, if the text of tokens is their bytes as UTF-8 (`Renderer.tokenBytes`) */
export function tokenText(
  decode: (tokens: Int32Array) => Promise<string>,
  give: (text: string) => void,
  table?: TokenBytes,
): TokenText {
  return table === undefined ? decodedText(decode, give) : joinedText(table, give)
}

function joinedText({ bytes, ends }: TokenBytes, give: (text: string) => void): TokenText {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  const say = (text: string) => {
    if (text !== '') give(text)
  }
  return {
    add(tokens) {
      let text = ''
      // An id that no token has adds nothing, as the tokenizer decodes it to nothing.
      for (const token of tokens)
        text += decoder.decode(bytes.subarray(ends[token - 1] ?? 0, ends[token] ?? 0), { stream: true })
      say(text)
    },
    async end() {
      say(decoder.decode())
    },
  }
}

function decodedText(decode: (tokens: Int32Array) => Promise<string>, give: (text: string) => void): TokenText {
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
