/** Demonstrations are rendered one batch ahead of the writer, in order; a failed batch fails when it is its turn. */
import { renderedDemonstrations } from '../../../actors/learning/demonstrations'
import type { Renderer } from '../../../backends/renderer/renderer'
import type { ChatMessage } from '../../../messages/facts'
import { createLog } from '../../../runtime/log'
import { refused } from '../../support/refusal'

const conversations = Array.from({ length: 600 }, (_, k): ChatMessage[] => [{ role: 'assistant', content: String(k) }])

/** A renderer whose tokens are the conversation's number; a batch from number `broken` on fails. */
function rendering(broken = Number.POSITIVE_INFINITY) {
  const asked: number[] = []
  const renderer = {
    async conversations(batch: readonly (readonly ChatMessage[])[]) {
      const first = Number(batch[0]![0]!.content)
      asked.push(first)
      if (first >= broken) throw new Error('no template')
      return batch.map(([message]) => ({ tokens: Int32Array.of(Number(message!.content)), mask: Uint8Array.of(1) }))
    },
  } as unknown as Pick<Renderer, 'conversations'>
  const log = createLog('test', { level: 'silent' })
  return { asked, examples: renderedDemonstrations({ renderer, conversations, tools: [], contextTokens: 320, log }) }
}

test('while a batch is read the next one is asked for, and no further one; the order is that of the recipe', async () => {
  const { asked, examples } = rendering()
  const seen: number[] = []
  for await (const { tokens } of examples) {
    seen.push(tokens[0]!)
    if (seen.length === 1) expect(asked).toEqual([0, 256])
  }
  expect(seen).toEqual(conversations.map((_, k) => k))
  expect(asked).toEqual([0, 256, 512])
})

test('the examples before a batch that cannot be rendered are given; then its error', async () => {
  const { examples } = rendering(256)
  for (let k = 0; k < 256; k++) expect((await examples.next()).value!.tokens[0]).toBe(k)
  expect((await refused(examples.next())).message).toBe('no template')
})

test('a reader that stops leaves no unhandled error of the batch that was asked for ahead', async () => {
  const { asked, examples } = rendering(256)
  await examples.next()
  await examples.return(undefined)
  await new Promise(resolve => setImmediate(resolve))
  expect(asked).toEqual([0, 256])
})
