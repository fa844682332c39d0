/**
 * A renderer with a token for each character, for tests of what a gateway does with token ids.
 *
 * in   messages        out  ChatML; its special tokens are one id each, and text never gives one of those ids
 * Invariant: decode(encode(text)) is the text. `dropsThinking`: a template that leaves out the thinking of earlier
 * turns, as Qwen3's does. `opensThinking`: a template whose prompt ends with `<think>`.
 */
import type { TextRenderer } from '../../../gateway/rendering/conversationRenderer'

const specials = ['<|im_start|>', '<|im_end|>']
const firstSpecial = 0x110000
const end = firstSpecial + 1

export function encodeChars(text: string): Int32Array {
  const ids: number[] = []
  for (const part of text.split(/(<\|im_start\|>|<\|im_end\|>)/)) {
    const special = specials.indexOf(part)
    if (special >= 0) ids.push(firstSpecial + special)
    else for (const char of part) ids.push(char.codePointAt(0)!)
  }
  return Int32Array.from(ids)
}

export const decodeChars = (tokens: Int32Array): string =>
  [...tokens].map(id => (id >= firstSpecial ? specials[id - firstSpecial]! : String.fromCodePoint(id))).join('')

export function charRenderer({
  dropsThinking = false,
  opensThinking = false,
} = {}): TextRenderer & { readonly prompts: number } {
  let prompts = 0
  return {
    get prompts() {
      return prompts
    },
    async prompt(messages, tools) {
      prompts++
      const said = messages.map(({ role, content }) => {
        const kept =
          dropsThinking && role === 'assistant' ? content.replace(/^<think>[\s\S]*?<\/think>\s*/, '') : content
        return `<|im_start|>${role}\n${kept}<|im_end|>\n`
      })
      const offered = tools.length === 0 ? '' : `<|im_start|>system\n${JSON.stringify(tools)}<|im_end|>\n`
      const text = `${offered}${said.join('')}<|im_start|>assistant\n${opensThinking ? '<think>\n' : ''}`
      return { text, tokens: encodeChars(text) }
    },
    encode: async text => encodeChars(text),
    decode: async tokens => decodeChars(tokens),
    tokenBytes: async () => undefined,
    describe: async () => ({ stopTokens: [end], digest: 'chars', vocabulary: firstSpecial + 2 }),
  }
}
