/**
 * Splits an answer into thinking and text while it is sampled.
 *
 * in   pieces of the model's text; at the end, the whole answer
 * out  pieces that a client can be sent at once
 * Invariant: text that may turn out to be a tag, a tool call, a special token or white space at the end is held back.
 * The pieces joined are the thinking and the content of the answer, if its thinking was opened at the answer's start or
 * by the prompt. Otherwise a piece that was already sent as content may be thinking in the answer.
 */
import type { AssistantMessage } from '../conversation/message'

export interface Delta {
  readonly kind: 'thinking' | 'content'
  readonly text: string
}

export interface DeltaOptions {
  readonly hasTools: boolean
  /** True if the prompt ends with an opening tag of thinking. */
  readonly opensThinking: boolean
}

const open = '<think>'
const close = '</think>'
const toolCall = '<tool_call>'
const ends = ['</s>', '<eos>', '<end_of_turn>']

export class Deltas {
  private text = ''
  private mode: 'start' | 'thinking' | 'content' | 'held'
  /** Position up to which the text has been processed: the text before it was sent, or is no part of the answer. */
  private at = 0
  private readonly sent = { thinking: '', content: '' }

  constructor(private readonly options: DeltaOptions) {
    this.mode = options.opensThinking ? 'thinking' : 'start'
  }

  push(piece: string): readonly Delta[] {
    this.text += piece
    const out: Delta[] = []
    if (this.mode === 'start') {
      const begun = this.text.trimStart()
      if (open.startsWith(begun)) return out
      this.mode = begun.startsWith(open) ? 'thinking' : 'content'
      if (this.mode === 'thinking') this.at = this.text.indexOf(open) + open.length
    }
    if (this.mode === 'thinking') {
      const end = this.text.indexOf(close, this.at)
      this.give(out, 'thinking', end < 0 ? this.safeEnd([close]) : end)
      if (end < 0) return out
      this.at = end + close.length
      this.mode = 'content'
    }
    if (this.mode === 'content') {
      const end = this.options.hasTools ? this.text.indexOf(toolCall, this.at) : -1
      this.give(out, 'content', end < 0 ? this.safeEnd(this.options.hasTools ? [toolCall, ...ends] : ends) : end)
      if (end >= 0) this.mode = 'held'
    }
    return out
  }

  /** Returns the rest of the answer, which the earlier pieces did not contain. */
  end(answer: Pick<AssistantMessage, 'content' | 'thinking'>): readonly Delta[] {
    const rest = (kind: 'thinking' | 'content'): Delta[] => {
      const text = answer[kind].startsWith(this.sent[kind]) ? answer[kind].slice(this.sent[kind].length) : ''
      return text === '' ? [] : [{ kind, text }]
    }
    return [...rest('thinking'), ...rest('content')]
  }

  /** Adds the text up to `end` to `out`, without white space at its start; that at its end waits until text follows. */
  private give(out: Delta[], kind: Delta['kind'], end: number): void {
    let piece = this.text.slice(this.at, end)
    if (this.sent[kind] === '') piece = piece.trimStart()
    const kept = piece.trimEnd()
    if (kept === '') return
    this.at = end - (piece.length - kept.length)
    this.sent[kind] += kept
    out.push({ kind, text: kept })
  }

  /** Position of the first tag or special token after `at`, complete or begun; if there is none, the text's length. */
  private safeEnd(tags: readonly string[]): number {
    for (let i = this.text.indexOf('<', this.at); i >= 0; i = this.text.indexOf('<', i + 1)) {
      const rest = this.text.slice(i)
      if (/^<\|/.test(rest) || rest === '<' || tags.some(tag => tag.startsWith(rest) || rest.startsWith(tag))) return i
    }
    return this.text.length
  }
}
