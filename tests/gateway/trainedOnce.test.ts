/**
 * Whatever an agent does with its history, each sampled token is trained on once; and the agents of this test do
 * everything that begins a branch.
 */
import fc from 'fast-check'
import { callRows, callTree } from '../../kernels'
import type { BranchReason, CallLabel, Fact } from '../../messages/facts'
import { charRenderer } from '../support/gateway/charRenderer'
import { openTestGateway, type TestGateway } from '../support/gateway/openTestGateway'

type Chat = {
  role: string
  content?: string | null
  tool_calls?: { id: string }[]
  tool_call_id?: string
  reasoning_content?: string
}

interface History {
  readonly messages: readonly Chat[]
  readonly tools: readonly object[]
}

const moves = [
  ...['continue', 'retry', 'again', 'rewind', 'parallel', 'compact', 'subagent', 'change-tools'],
  ...['edit-answer', 'edit-tool', 'edit-user', 'edit-system', 'strip-thinking'],
] as const
type Move = readonly [kind: (typeof moves)[number], pick: number]

/** A compiler error names the reason that is missing here. */
const everyReason: Readonly<Record<BranchReason, true>> = {
  ...{ first: true, sample: true, rewound: true, template: true, compaction: true, 'new-conversation': true },
  ...{ 'answer-edited': true, 'thinking-stripped': true, 'tool-result-edited': true, 'message-edited': true },
  ...{ 'system-changed': true, 'tools-changed': true },
}
const everyLabel: readonly CallLabel[] = ['main', 'subagent', 'compaction', 'aux']

const user = (content: string): Chat => ({ role: 'user', content })
const tool = (name: string) => ({ type: 'function', function: { name, parameters: { type: 'object' } } })
const bash = [tool('bash')]
const useOfBash = '<tool_call>\n{"name": "bash", "arguments": {"cmd": "ls"}}\n</tool_call>'
const texts = ['plain', '<think>\nhm\n</think>\n\nsure', `x\n${useOfBash}`, 'cut short by its bound']

const bytesOf = ({ buffer, byteOffset, byteLength }: Int32Array) => Buffer.from(buffer, byteOffset, byteLength)
const equal = (a: Int32Array, b: Int32Array) => bytesOf(a).equals(bytesOf(b))

/** Lets an agent make its moves. Each answer begins a history, which later moves pick by its number. */
async function act({ post, engine }: TestGateway, agent: readonly Move[]): Promise<void> {
  const histories: History[] = [{ messages: [{ role: 'system', content: 'S' }, user('go')], tools: bash }]
  let n = 0
  const ask = async (
    messages: readonly Chat[],
    { tools, retry = 0 }: Pick<History, 'tools'> & { readonly retry?: number },
  ) => {
    engine.version = n % 3
    const body = { model: 'm', messages, tools, ...(n % 5 === 4 ? { max_tokens: 3 } : {}) }
    const response = await post('/v1/chat/completions', body, { 'x-stainless-retry-count': String(retry) })
    const { choices, error } = (await response.json()) as {
      choices?: { message: Chat }[]
      error?: { message: string }
    }
    if (choices === undefined) throw new Error(error?.message)
    const answer = choices[0]!.message
    const results = (answer.tool_calls ?? []).map(({ id }) => ({
      ...{ role: 'tool', tool_call_id: id, content: `result ${n}` },
    }))
    const next = results.length > 0 ? results : [user(`more ${n}`), ...(n % 2 === 0 ? [user('please')] : [])]
    histories.push({ messages: [...messages, answer, ...next], tools })
  }
  for (const [kind, pick] of agent) {
    n++
    const same = histories[pick % histories.length]!
    const { messages, tools } = same
    const askEdited = (role: string, change: (one: Chat) => Chat) => {
      const at = messages.findLastIndex(one => one.role === role)
      return ask(at < 0 ? messages : messages.with(at, change(messages[at]!)), same)
    }
    const reworded = (one: Chat): Chat => ({ ...one, content: `edited ${n}` })
    switch (kind) {
      case 'continue':
      case 'again':
        await ask(messages, same)
        break
      case 'retry':
        await ask(messages, { tools, retry: 1 })
        break
      case 'rewind':
        await ask(messages.at(-2)?.role === 'assistant' ? messages.slice(0, 1) : messages.slice(0, -1), same)
        break
      case 'parallel':
        await Promise.all([ask([...messages, user('a')], same), ask([...messages, user('b')], same)])
        break
      case 'compact':
        await ask([messages[0]!, user(`summary ${n}`)], same)
        break
      case 'subagent':
        await ask([{ role: 'system', content: `sub ${n}` }, user('go')], same)
        break
      case 'change-tools':
        await ask(messages, { tools: [...tools, tool(`tool_${n}`)] })
        break
      case 'edit-answer':
        await askEdited('assistant', reworded)
        break
      case 'edit-tool':
        await askEdited('tool', reworded)
        break
      case 'edit-user':
        await askEdited('user', reworded)
        break
      case 'edit-system':
        await askEdited('system', reworded)
        break
      case 'strip-thinking':
        await askEdited('assistant', ({ reasoning_content: _, ...one }) => one)
        break
    }
  }
}

/** Compares the training rows with what the engine sampled: its logprobs are all different, and so identify tokens. */
function expectTrainedOnce(facts: readonly Fact[], { sampled }: TestGateway['engine']): void {
  const trained = new Map<number, { readonly version: number; readonly toHere: Int32Array }>()
  let bits = 0
  for (const { tokens, mask, engineLogprobs, versions } of callRows(callTree(facts), everyLabel))
    mask.forEach((bit, i) => {
      if (bit === 0) return
      bits++
      trained.set(engineLogprobs[i]!, { version: versions[i]!, toHere: tokens.subarray(0, i + 1) })
    })
  let count = 0
  for (const { tokens, logprobs, context, version } of sampled) {
    const whole = Int32Array.of(...context, ...tokens)
    logprobs.forEach((logprob, i) => {
      count++
      const one = trained.get(logprob)
      if (one?.version === version && equal(one.toHere, whole.subarray(0, context.length + i + 1))) return
      throw new Error(`token ${i} of an answer to ${context.length} tokens is trained as ${JSON.stringify(one)}`)
    })
  }
  expect([bits, trained.size]).toEqual([count, count])
}

/** Agents that do everything once: chance alone may leave a reason out. */
const agents: readonly [agent: Move[], dropsThinking: boolean][] = [
  [
    [
      // The answers: plain, with thinking (history 2), with a tool call (history 3).
      ...([0, 1, 2].map(pick => ['continue', pick]) as Move[]),
      ['continue', 3],
      ['again', 1],
      ['rewind', 0],
      ['strip-thinking', 2],
      ['edit-answer', 1],
      ['edit-user', 1],
      ['edit-tool', 3],
      ['compact', 0],
      ['subagent', 0],
      ['change-tools', 0],
      ['edit-system', 4],
    ],
    false,
  ],
  [[0, 1, 2].map(pick => ['continue', pick] as const), true],
]

test('for any agent the training rows are exactly the sampled tokens, each once, with the logprobs and versions of its sampling', async () => {
  const reasons = new Set<BranchReason>()
  const move = fc.tuple(fc.constantFrom(...moves, ...Array<'continue'>(4).fill('continue')), fc.nat(1000))
  await fc.assert(
    fc.asyncProperty(
      fc.array(move, { minLength: 1, maxLength: 14, size: 'max' }),
      fc.boolean(),
      async (agent, dropsThinking) => {
        const gateway = await openTestGateway((_context, turn) => texts[turn % 4]! + turn, {
          renderer: charRenderer({ dropsThinking }),
        })
        try {
          await act(gateway, agent)
          const facts = await gateway.facts()
          for (const fact of facts) if (fact.type === 'call.started' && fact.branch !== null) reasons.add(fact.branch)
          expectTrainedOnce(facts, gateway.engine)
        } finally {
          await gateway.close()
        }
      },
    ),
    { numRuns: 40, examples: [...agents] },
  )
  expect([...reasons].sort()).toEqual(Object.keys(everyReason).sort())
}, 240_000)
