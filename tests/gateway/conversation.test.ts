/** A request finds the call that it continues by its messages alone, and whatever differs for the model begins a branch. */
import fc from 'fast-check'
import { answerOf } from '../../gateway/conversation/answer'
import { ConversationIndex } from '../../gateway/conversation/conversationIndex'
import { labelOf } from '../../gateway/conversation/label'
import { type AssistantMessage, canonicalJson, type Message, messageKey } from '../../gateway/conversation/message'

const system: Message = { role: 'system', content: 'You fix bugs.' }
const user = (content: string): Message => ({ role: 'user', content })
const tool = (content: string): Message => ({ role: 'tool', content, toolUseId: 'a', isError: null })
const said = (content: string, more: Partial<AssistantMessage> = {}): AssistantMessage => ({
  ...{ role: 'assistant', content, thinking: '', toolUses: [] },
  ...more,
})

/** A session with one call, [system, user], and its answer. */
function begun(answer: AssistantMessage, options = {}) {
  const index = new ConversationIndex(options)
  index.addRequest(0, null, '[]', [system, user('go')])
  index.addAnswer(0, answer)
  return { index, place: (...messages: Message[]) => placeIn(index, messages) }
}

function placeIn(index: ConversationIndex, messages: readonly Message[]) {
  const { digests: _, ...place } = index.place({ tools: '[]', messages })
  return place
}

test('the next turn continues the call whose answer it holds, and only new messages are left', () => {
  const { place } = begun(said('ls'))
  expect(place(system, user('go'), said('ls'), tool('a.txt'))).toEqual({ parent: 0, held: 3, branch: null })
})

test('white space, key order, ids and volatile headers are no differences', () => {
  const use = { id: 'call_1', name: 'bash', arguments: '{"a":1,"b":[2]}' }
  const { place } = begun(said('I look.', { toolUses: [use] }))
  const echoed = said(' I look.\r\n', { toolUses: [{ id: 'other', name: 'bash', arguments: '{ "b": [2], "a": 1 }' }] })
  const billed: Message = { role: 'system', content: 'x-anthropic-billing-header: cch=1f;\nYou fix bugs.' }
  expect(place(billed, user('go'), echoed, tool('ok'))).toEqual({ parent: 0, held: 3, branch: null })
})

test.each<[string, readonly Message[], number | null, string]>([
  ['the same request again', [system, user('go')], null, 'sample'],
  ['an edited answer', [system, user('go'), said('rm'), tool('x')], null, 'answer-edited'],
  ['an answer without its thinking', [system, user('go'), said('ls'), tool('x')], null, 'thinking-stripped'],
  [
    'a changed system prompt',
    [{ role: 'system', content: 'Other' }, user('go'), said('x'), user('y')],
    null,
    'system-changed',
  ],
  ['another first message', [system, user('name this chat')], null, 'new-conversation'],
  ['an earlier point of the history', [system], null, 'rewound'],
])('%s begins a branch that says so', (_title, messages, parent, branch) => {
  const { place } = begun(said('ls', { thinking: 'I list the files.' }))
  expect(place(...messages)).toMatchObject({ parent, branch })
})

test('an edited tool result branches off after the turn that called the tool', () => {
  const { index, place } = begun(said('ls'))
  index.addRequest(1, 0, '[]', [tool('a.txt')])
  index.addAnswer(1, said('cat a.txt'))
  const edited = [system, user('go'), said('ls'), tool('b.txt')]
  expect(place(...edited)).toEqual({ parent: 0, held: 3, branch: 'tool-result-edited' })
  expect(place(...edited.slice(0, 3), user('stop'))).toMatchObject({ parent: 0, branch: 'message-edited' })
})

test('a history that was replaced by a summary is a compaction', () => {
  const { index, place } = begun(said('ls'))
  index.addRequest(1, 0, '[]', [tool('a.txt')])
  index.addAnswer(1, said('done'))
  expect(place(system, user('Summary: there is a.txt'))).toEqual({ parent: null, held: 0, branch: 'compaction' })
})

test('the number of conversations that a session has begun does not slow down the next', () => {
  const index = new ConversationIndex()
  const began = (count: number) => {
    const cpu = process.cpuUsage()
    for (let i = 0; i < count; i++) index.addRequest(calls++, null, '[]', [user(`task ${calls}`)])
    return process.cpuUsage(cpu).user / count
  }
  let calls = 0
  began(1000)
  const first = began(1000)
  began(16_000)
  // A scan of the conversations would make it tenfold.
  expect(began(1000)).toBeLessThan(4 * first)
})

test('tools are part of a conversation', () => {
  const { index } = begun(said('ls'))
  const messages = [system, user('go'), said('ls'), tool('a')]
  expect(index.place({ tools: '[{"name":"bash"}]', messages })).toMatchObject({ parent: null, branch: 'tools-changed' })
})

test('an answer that comes back without its thinking is continued where the recipe restores it', () => {
  const answer = said('ls', { thinking: 'I list the files.' })
  const { index, place } = begun(answer, { strippedThinking: 'restore' })
  expect(place(system, user('go'), said('ls'), tool('a'))).toEqual({ parent: 0, held: 3, branch: null })
  index.addRequest(1, 0, '[]', [tool('a')])
  index.addAnswer(1, said('done', { thinking: 'One file.' }))
  const later = [system, user('go'), said('ls'), tool('a'), said('done'), user('thanks')]
  expect(place(...later)).toEqual({ parent: 1, held: 5, branch: null })
})

test('a conversation of any length is found by one look-up for each of its messages', () => {
  const index = new ConversationIndex()
  const messages: Message[] = [system, user('go')]
  index.addRequest(0, null, '[]', messages)
  for (let call = 0; call < 300; call++) {
    const answer = said(`step ${call}`)
    index.addAnswer(call, answer)
    messages.push(answer, tool(`result ${call}`))
    expect(placeIn(index, messages)).toEqual({ parent: call, held: messages.length - 1, branch: null })
    index.addRequest(call + 1, call, '[]', messages.slice(-1))
  }
})

test("a request's digest depends on its tools and messages alone, whatever the session has recorded", () => {
  const digest = (index: ConversationIndex, messages: readonly Message[], tools = '[]') =>
    index.place({ tools, messages }).digests
  const history = [system, user('go'), said('ls', { thinking: 'I list.' }), tool('a.txt')]
  const { index } = begun(said('ls', { thinking: 'I list.' }))
  const unknown = digest(new ConversationIndex(), history)
  expect(digest(index, history)).toBe(unknown)
  index.addRequest(1, 0, '[]', history.slice(-1))
  expect(digest(index, structuredClone(history))).toBe(unknown)
  expect(digest(index, [system, user('go'), said(' ls\r\n', { thinking: 'I list.' }), tool('a.txt')])).toBe(unknown)
  const others = [history.slice(0, 3), [...history.slice(0, 3), tool('b.txt')], [user('go'), ...history.slice(1)]]
  expect(new Set([unknown, digest(index, history, '[1]'), ...others.map(one => digest(index, one))]).size).toBe(5)
})

test('canonical JSON does not depend on the order of keys', () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), data => {
      const reversed = Object.fromEntries(Object.entries(data).reverse())
      expect(canonicalJson(reversed)).toBe(canonicalJson(data))
      // JSON writes -0 as 0.
      expect(JSON.parse(canonicalJson(data))).toEqual(JSON.parse(JSON.stringify(data)))
    }),
  )
})

describe('an answer', () => {
  const read = (text: string, hasTools = true, opensThinking = false) =>
    answerOf(text, { hasTools, opensThinking, idOf: i => `call_${i}` })

  test('is split into thinking, text and tool calls', () => {
    const text =
      '<think>\nfirst\n</think>\n\nLook:\n<tool_call>\n{"arguments": {"b": 1, "a": 2}, "name": "ls"}\n</tool_call><|im_end|>'
    expect(read(text)).toEqual({
      ...{ role: 'assistant', content: 'Look:', thinking: 'first' },
      toolUses: [{ id: 'call_0', name: 'ls', arguments: '{"a":2,"b":1}' }],
    })
  })

  test('keeps a malformed call, and every call when no tools were offered, in its text', () => {
    expect(read('<tool_call>\n{"name": \n</tool_call>').content).toContain('{"name":')
    expect(read('<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>', false).toolUses).toEqual([])
  })

  test('has the same key when it comes back through any client', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.string(), (content, thinking) => {
        const one = said(content, { thinking })
        const back: Message = JSON.parse(JSON.stringify({ ...one, content: `\n${content}  ` }))
        expect(messageKey(back)).toBe(messageKey(one))
      }),
    )
  })
})

describe('the label', () => {
  const hints = { model: 'm', hasTools: true, messages: 5 }
  const first = { hasTools: true, lane: 'a' }

  test("of a call that continues another is the other one's", () => {
    expect(labelOf(hints, { branch: null, continued: 'compaction', first })).toBe('compaction')
    expect(labelOf(hints, { branch: 'sample', continued: 'main', first })).toBe('main')
  })

  test('tells main conversation, compaction, sub-agent and auxiliary calls apart', () => {
    expect(labelOf(hints, { branch: 'first' })).toBe('main')
    expect(labelOf(hints, { branch: 'compaction', first })).toBe('compaction')
    expect(labelOf(hints, { branch: 'new-conversation', first })).toBe('subagent')
    expect(labelOf(hints, { branch: 'new-conversation', first: { hasTools: false } })).toBe('main')
    expect(labelOf({ ...hints, lane: 'b' }, { branch: 'sample', first })).toBe('subagent')
    expect(labelOf({ ...hints, hasTools: false, messages: 1 }, { branch: 'new-conversation', first })).toBe('aux')
    expect(labelOf({ ...hints, model: 'claude-3-5-haiku-latest' }, { branch: null, continued: 'main', first })).toBe(
      'aux',
    )
    expect(labelOf({ ...hints, said: 'subagent' }, { branch: null, continued: 'main', first })).toBe('subagent')
  })
})
