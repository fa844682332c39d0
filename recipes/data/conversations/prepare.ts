/**
 * Turns the rows of a published set into conversations for a cold start.
 *
 * in   rows
 * out  `{id, messages, source}`, shuffled by the seed if one is given, and the number of rows by outcome
 * Invariant: rows = kept + broken + dropped. Of equal conversations the first is kept.
 */
import { createHash } from 'node:crypto'
import type { ChatMessage } from '../../../messages/facts'
import { deriveSeed } from '../../../runtime/effects'
import { type RowCounts, rowCounter } from '../rowCounts'
import type { ReadRow } from '../rows'
import type { ConversationSet } from './formats'

interface PreparedConversation {
  readonly id: string
  readonly messages: readonly ChatMessage[]
  readonly source: string
}

export interface PreparedConversations extends RowCounts {
  readonly conversations: readonly PreparedConversation[]
}

export async function prepareConversations(
  rows: AsyncIterable<ReadRow>,
  set: ConversationSet,
  { seed, limit }: { readonly seed?: number | undefined; readonly limit?: number | undefined },
): Promise<PreparedConversations> {
  const counter = rowCounter()
  const found = new Map<string, PreparedConversation>()
  for await (const { row, place } of rows) {
    counter.row()
    const read = readRow(row, set)
    if ('messages' in read) {
      const digest = createHash('sha256').update(JSON.stringify(read.messages)).digest('hex').slice(0, 16)
      if (found.has(digest)) counter.dropped('repeats the conversation of an earlier row')
      else found.set(digest, { id: `${set.name}-${digest}`, messages: read.messages, source: set.name })
    } else if ('other' in read) counter.dropped(read.other)
    else counter.broken(read.broken, place)
  }
  const all = [...found.values()]
  const placed = all.map(one => ({ one, at: seed === undefined ? 0 : deriveSeed('data/order', seed, one.id) }))
  const ordered = placed.sort((a, b) => a.at - b.at).map(({ one }) => one)
  const conversations = ordered.slice(0, limit)
  counter.dropped('beyond the limit', ordered.length - conversations.length)
  return { conversations, ...counter.counts() }
}

function readRow(row: unknown, set: ConversationSet) {
  if (row === undefined) return { broken: 'not JSON' }
  if (typeof row !== 'object' || row === null || Array.isArray(row)) return { broken: 'not an object' }
  return set.read(row as Readonly<Record<string, unknown>>)
}
