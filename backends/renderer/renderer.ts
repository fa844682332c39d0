/**
 * The Renderer: the only tokeniser of a run. It renders chat messages once, into token ids.
 *
 * in   messages, tools, tool responses, token ids        out  texts, token ids, masks
 * Invariant: tokens that were rendered or sampled are never tokenised again.
 */
import type { ToolSchema } from '../../config/toolSchema'
import type { ChatMessage } from '../../messages/facts'
import type { TokenBytes } from './tokenText'

export interface Rendered {
  readonly text: string
  readonly tokens: Int32Array
}

export interface Renderer {
  /** Renders a prompt, ending with the template's generation prompt. */
  prompt(messages: readonly ChatMessage[], tools: readonly ToolSchema[]): Promise<Rendered>
  /** Renders the tokens that follow the model's last token: tool responses and the next generation prompt. */
  toolResponses(responses: readonly string[]): Promise<Rendered>
  /** Renders whole conversations for SFT, each with a mask that is 1 on the assistant's tokens. */
  conversations(
    conversations: readonly (readonly ChatMessage[])[],
    tools: readonly ToolSchema[],
  ): Promise<readonly (Rendered & { readonly mask: Uint8Array })[]>
  decode(tokens: Int32Array): Promise<string>
  /** Bytes of each token; undefined if the text of tokens is not their bytes, joined and decoded as UTF-8. */
  tokenBytes(): Promise<TokenBytes | undefined>
  /**
   * Encodes a text without a template, for engines that answer only with text; sampling may have produced other token
   * ids.
   */
  encode(text: string): Promise<Int32Array>
  /**
   * Returns the token ids that end an assistant's turn, a digest of tokenizer and template, and the vocabulary's size.
   */
  describe(): Promise<{ readonly stopTokens: readonly number[]; readonly digest: string; readonly vocabulary: number }>
  close(): Promise<void>
}
