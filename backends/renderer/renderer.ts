/**
 * The Renderer: the only tokeniser there is. It renders chat messages once, as token ids (DESIGN §4, tokens).
 */
import type { ToolSchema } from '../../config/toolSchema'
import type { ChatMessage } from '../../messages/facts'

export interface Rendered {
  readonly text: string
  readonly tokens: Int32Array
}

export interface Renderer {
  /** A prompt with the generation prompt at its end. */
  prompt(messages: readonly ChatMessage[], tools: readonly ToolSchema[]): Promise<Rendered>
  /** What follows the model's last token: tool responses and the next generation prompt, as a delta. */
  toolResponses(responses: readonly string[]): Promise<Rendered>
  /** Whole conversations, each with a mask of the assistant's tokens, for SFT. */
  conversations(
    conversations: readonly (readonly ChatMessage[])[],
    tools: readonly ToolSchema[],
  ): Promise<readonly (Rendered & { readonly mask: Uint8Array })[]>
  decode(tokens: Int32Array): Promise<string>
  /** Ids of a text as it stands, for engines that answer with text alone; it need not be how the text was sampled. */
  encode(text: string): Promise<Int32Array>
  /** Token ids that end an assistant's turn, and a digest of tokenizer and template. */
  describe(): Promise<{ readonly stopTokens: readonly number[]; readonly digest: string; readonly vocabulary: number }>
  close(): Promise<void>
}
