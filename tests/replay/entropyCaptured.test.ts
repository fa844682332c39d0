/**
 * Sessions of the gateway under `replay entropy`: each sampled token that is trained on counts once, over branches and
 * forks; the command says how many others there are.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { CallFact } from '../../messages/facts'
import { policyVersion } from '../../messages/ids'
import { openLog } from '../../replay/log/recordedRun'
import { measuredTokens } from '../../replay/tokens/measuredTokens'
import { sampledPieces, sampledSequences } from '../../replay/tokens/sampledPieces'
import { recordedEntropies } from '../../replay/tokens/topTokens'
import { readTrajectories, type Trajectory } from '../../replay/trajectories/trajectory'
import { requested } from '../support/facts'
import { recordGateway } from '../support/gateway/recordedGateway'
import type { Sampled } from '../support/gateway/scriptedEngine'
import { refused } from '../support/refusal'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-entropy-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
const bus = `lmdb:${directory}`
const entropy = (...args: readonly string[]) => troupeHere(['replay', 'entropy', ...args, '--bus', bus, '--run', 'r'])

const written = [
  '<tool_call>{"name":"add","arguments":{"a":12,"b":30}}</tool_call>',
  'It is 42, as the tool says.',
  'It is 43.',
  'A title',
  'Thanks.',
]
/** Answers in the order of sampling: a call of a tool, what follows its result, a branch of that, a title, a fork's. */
let sampled: readonly Sampled[]
const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length
const surprisals = (answers: readonly Sampled[]) => answers.flatMap(({ logprobs }) => [...logprobs].map(p => -p))
const lengthOf = (answers: readonly Sampled[]) => surprisals(answers).length

beforeAll(async () => {
  sampled = await recordGateway(bus, written, async ({ post, say }) => {
    const question = { role: 'user', content: 'What is 12 + 30?' }
    const asked = await say('me', [question])
    const result = (content: string) => ({ role: 'tool', tool_call_id: asked.tool_calls[0]!.id, content })
    const told = await say('me', [question, asked, result('42')])
    await say('me', [question, asked, result('43')])
    await say('titles', [{ role: 'user', content: 'Name this chat.' }], 'aux')
    const forked = await post('/troupe/v1/sessions/agent.0000%2F0/fork', { call_id: 1 })
    const { key } = (await forked.json()) as { key: string }
    await say(key, [question, asked, result('42'), told, { role: 'user', content: '<b>Good.</b>' }])
  })
})

test('the tokens of all branches and of forks count once each, and only those right after a tool response as such', async () => {
  const [call, after, branch, title, fork] = sampled as readonly [Sampled, Sampled, Sampled, Sampled, Sampled]
  const said = JSON.parse((await entropy('--all', '--json', '--limit', '100')).stdout) as {
    rows: { sampled: number }[]
    meanValue: number
  }
  const counted = [call, after, branch, fork]
  expect(said).toMatchObject({
    ...{ measure: 'surprisal', trajectories: 2, sampled: lengthOf(counted), afterTool: 10 + 10 },
    leftOut: { untrained: title.tokens.length, copied: lengthOf([call, after]) },
  })
  expect(said.meanValue).toBeCloseTo(mean(surprisals(counted)), 9)
  const { stdout } = await entropy('--all')
  expect(stdout).toContain(`\nnot counted: ${title.tokens.length} tokens of captured calls that are not trained on`)
  expect(stdout).toContain(`\nnot counted: ${lengthOf([call, after])} tokens of calls that a fork copied`)
  const alone = JSON.parse((await entropy('agent.0002/0', '--json')).stdout)
  expect(alone).toMatchObject({ trajectories: 1, sampled: fork.tokens.length, afterTool: 0 })
  expect((await entropy('agent.0000/0')).stdout).not.toContain('not counted')
})

test('a session of which nothing is trained on is an error that says how many tokens it has', async () => {
  const { code, stderr } = await entropy('agent.0001/0')
  expect(code).toBe(2)
  expect(stderr).toContain(`no sampled tokens; not counted: ${sampled[3]!.tokens.length} tokens of captured calls`)
})

test('the page of a session has its calls, and frames the least sure of the tokens that count', async () => {
  for (const [session, answers] of [
    ['agent.0000/0', sampled.slice(0, 3)],
    ['agent.0002/0', sampled.slice(4)],
  ] as const) {
    const file = join(directory, 'page.html')
    expect(await entropy(session, '--html', file)).toMatchObject({ code: 0, stderr: '' })
    const page = readFileSync(file, 'utf8')
    expect(page.match(/<span class="[^"]*\btop"/g)).toHaveLength(Math.ceil(0.2 * lengthOf(answers)))
    expect(page).toContain('What is 12 + 30?')
    // The scripted engine's logprobs fall with every token, so the last ones are the least sure.
    const last = surprisals(answers).at(-1)!
    expect(page).toMatch(new RegExp(`class="[^"]*top" title="[^"]*surprisal ${last.toFixed(3)}"`))
  }
  expect(readFileSync(join(directory, 'page.html'), 'utf8')).toContain('&lt;b&gt;Good.&lt;/b&gt;')
})

/** The session `id` as it was recorded, with each of its calls' facts changed. */
async function session(id: string, change: (fact: CallFact) => CallFact = fact => fact): Promise<Trajectory> {
  const recorded = await openLog({ bus, run: 'r' })
  const [found] = await readTrajectories(recorded, one => one === id).finally(() => recorded.close())
  const entries = found!.entries.map(entry => ({ ...entry, message: change(entry.message as CallFact) }))
  return { ...found!, entries }
}

test('a model is given each token under the context and the temperature that it was sampled with', async () => {
  const warm = (fact: CallFact): CallFact =>
    fact.type === 'call.started' && fact.call > 0
      ? { ...fact, sampling: { ...fact.sampling, temperature: 0.5 } }
      : fact.type === 'call.finished'
        ? { ...fact, segments: [{ policyVersion: policyVersion(fact.call), start: 0, end: fact.tokens.length }] }
        : fact
  const one = await session('agent.0000/0', warm)
  const asked = sampledSequences(one, 9).flatMap(({ tokens, mask, versions, temperature }) => {
    const at = [...mask.keys()].filter(i => mask[i] === 1)
    expect(versions).toHaveLength(at.length)
    return at.map((i, k) => ({
      context: [...tokens.subarray(0, i)],
      token: tokens[i],
      version: versions[k],
      temperature,
    }))
  })
  const expected = sampled.slice(0, 3).flatMap(({ context, tokens }, call) =>
    [...tokens].map((token, i) => ({
      context: [...context, ...tokens.subarray(0, i)],
      ...{ token, version: call, temperature: call === 0 ? 1 : 0.5 },
    })),
  )
  expect(asked).toEqual(expected)
  // Entropies that a model computes are matched with the tokens by their order.
  expect(sampledPieces(one).flatMap(({ tokens }) => [...tokens])).toEqual(expected.map(({ token }) => token))
})

test('entropies that the engine recorded are taken if every call that counts has them', async () => {
  const values = (tokens: Int32Array) => Float32Array.from(tokens, (_, i) => i / 8)
  const withEntropies = (most: number) => (fact: CallFact) =>
    fact.type === 'call.finished' && fact.call < most ? { ...fact, entropies: values(fact.tokens) } : fact
  const whole = sampledPieces(await session('agent.0000/0', withEntropies(3)))
  expect(recordedEntropies(whole)).toEqual(sampled.slice(0, 3).flatMap(({ tokens }) => [...values(tokens)]))
  expect(recordedEntropies(sampledPieces(await session('agent.0000/0', withEntropies(2))))).toBeUndefined()
})

test('a session that was sampled greedily has no entropy, and --with-model says so by its name', async () => {
  const greedy = await session('agent.0000/0', fact =>
    fact.type === 'call.started' ? { ...fact, sampling: { ...requested('g', 0).sampling, temperature: 0 } } : fact,
  )
  const recorded = await openLog({ bus, run: 'r' })
  const refusal = await refused(measuredTokens(recorded, [greedy], { model: directory })).finally(() =>
    recorded.close(),
  )
  expect(refusal).toMatchObject({
    code: 'replay.bad_entropy',
    message: expect.stringContaining('agent.0000/0 was sampled greedily'),
  })
})
