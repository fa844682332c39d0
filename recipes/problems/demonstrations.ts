/**
 * Reads conversations: one line `{"messages": [{"role": …, "content": …}, …]}` each, as `troupe data` writes them.
 *
 * in   a JSONL file        out  conversations in the file's order
 * Invariant: a row is used whole or not at all. It has at least two messages; every message has a known role and a
 * text; the last message is the assistant's.
 */
import { readFile } from 'node:fs/promises'
import { basename, resolve } from 'node:path'
import { z } from 'zod'
import type { ChatMessage } from '../../messages/facts'
import { deriveSeed } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import { withoutBom } from '../../runtime/settings/withoutBom'

const conversation = z
  .array(z.object({ role: z.enum(['system', 'user', 'assistant', 'tool']), content: z.string() }))
  .min(2)
  .refine(messages => messages.at(-1)!.role === 'assistant')

/**
 * Reads the first `limit` conversations. `largestBadShare`: share of unusable rows (0 to 1) above which the file is
 * refused. @throws TroupeError config.no_data if the file cannot be read, holds no conversation, or is refused
 */
export async function readDemonstrations(
  file: string,
  largestBadShare: number,
  limit = Number.POSITIVE_INFINITY,
): Promise<readonly (readonly ChatMessage[])[]> {
  const path = resolve(file)
  const text = await readFile(path, 'utf8').catch(thrown => {
    throw noDemonstrations(`${path} cannot be read: ${asError(thrown).message}`, 'give a readable file')
  })
  const lines = withoutBom(text)
    .split('\n')
    .map((line, at) => ({ line, at }))
    .filter(({ line }) => line.trim() !== '')
  const parsed = lines.map(({ line, at }) => ({ at, messages: parseLine(line) }))
  const read = parsed.flatMap(({ messages }) => (typeof messages === 'string' ? [] : [messages]))
  const bad = lines.length - read.length
  if (read.length === 0 || bad > largestBadShare * lines.length) {
    const first = parsed.find(({ messages }) => typeof messages === 'string')
    const place = first === undefined ? path : `${path}:${first.at + 1}: ${String(first.messages)}`
    throw noDemonstrations(
      lines.length === 0
        ? `${path}: holds no rows`
        : `${place}: ${bad} of ${lines.length} rows are not conversations that end with the assistant`,
    )
  }
  return read.slice(0, limit)
}

/**
 * Draws `count` conversations of each file (without `count`: all) by the seed and shuffles them together; `limit`
 * bounds the result.
 */
export async function mixedDemonstrations(
  parts: readonly { readonly file: string; readonly count?: number | undefined }[],
  largestBadShare: number,
  seed: number,
  limit = Number.POSITIVE_INFINITY,
): Promise<readonly (readonly ChatMessage[])[]> {
  const mixed: { readonly messages: readonly ChatMessage[]; readonly at: number }[] = []
  for (const { file, count } of parts) {
    const read = await readDemonstrations(file, largestBadShare)
    const placed = read.map((messages, k) => ({ messages, at: deriveSeed('demonstrations', seed, basename(file), k) }))
    mixed.push(...placed.sort((a, b) => a.at - b.at).slice(0, count))
  }
  const ordered = mixed.sort((a, b) => a.at - b.at).slice(0, limit)
  return ordered.map(({ messages }) => messages)
}

/** Returns the messages of a line, or the reason why it is not a conversation. */
function parseLine(line: string): readonly ChatMessage[] | string {
  let row: unknown
  try {
    row = JSON.parse(line)
  } catch {
    return 'not JSON'
  }
  const read = conversation.safeParse((row as { messages?: unknown } | null)?.messages)
  return read.success ? read.data : 'not a conversation'
}

const form =
  'rows must be {"messages": [{"role": "user", "content": …}, {"role": "assistant", "content": …}]}, one per line'
const noDemonstrations = (message: string, hint = form) =>
  new TroupeError('config.no_data', { boundary: 'config', retriable: false, message, hint })
