/** Two different sessions of the gateway, compared by `replay diff`: the call and the token at which they part. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runId } from '../../messages/ids'
import type { TokenDifference } from '../../replay/trajectories/diffTrajectories'
import { openTroupe } from '../../runtime/embed'
import { runDirectory } from '../../runtime/runDirectory'
import { troupe } from '../support/cli'
import { encodeChars } from '../support/gateway/charRenderer'
import { openTestGateway } from '../support/gateway/openTestGateway'

jest.setTimeout(120_000)

interface Diff {
  readonly same: boolean
  readonly difference: TokenDifference
}

test('sessions part at the first sampled token that differs, or at the messages that follow equal answers', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-diff-'))
  try {
    const files = runDirectory(directory, runId('r'))
    mkdirSync(files.log, { recursive: true })
    const log = await openTroupe({ bus: `lmdb:${files.log}`, run: 'r' })
    const texts = ['blue sky', 'green', 'blue sea', 'green', 'blue sky', 'brown']
    const { engine, post, close } = await openTestGateway((_context, turn) => texts[turn]!, { over: log })
    const user = (content: string) => ({ role: 'user', content })
    const say = async (key: string, ...messages: readonly object[]) => {
      const response = await post('/v1/chat/completions', { model: 'm', messages }, { authorization: `Bearer ${key}` })
      return ((await response.json()) as { choices: readonly { message: object }[] }).choices[0]!.message
    }
    for (const [key, next] of [['a', 'and grass?'], ['b', 'and grass?'], ['c', 'and wood?']] as const) // biome-ignore format: a table
      await say(key, user('what is blue?'), await say(key, user('what is blue?')), user(next))
    await close()
    await log.close()
    const diff = (b: string, ...more: readonly string[]) =>
      troupe(['replay', 'diff', 'agent.0000/0', b, '--run', 'r', '--bus', `lmdb:${directory}`, ...more]).done
    const told = async (b: string) => {
      const { code, stdout } = await diff(b, '--json')
      return { code, ...(JSON.parse(stdout) as Diff) }
    }

    // 'blue sky' and 'blue sea' share six characters, each a token, after the same prompt.
    const [first, , other] = engine.sampled
    const sampled = await told('agent.0001/0')
    expect(sampled).toMatchObject({
      ...{ code: 1, same: false },
      difference: {
        common: first!.context.length + 'blue s'.length,
        a: { where: 'answer of call 0', token: encodeChars('k')[0], logprob: first!.logprobs[6], policyVersion: 0 },
        b: { where: 'answer of call 0', token: encodeChars('e')[0], logprob: other!.logprobs[6] },
      },
    })
    const said = await told('agent.0002/0')
    expect(said.difference).toMatchObject({
      a: { where: 'messages of call 1', token: encodeChars('g')[0], logprob: null },
      b: { where: 'messages of call 1', token: encodeChars('w')[0], logprob: null },
    })
    const [second] = engine.sampled.slice(1)
    expect([...second!.context.slice(0, said.difference.common)]).toEqual(
      [...engine.sampled[5]!.context].slice(0, said.difference.common),
    )
    // A session that has not ended has no count of tool calls yet, so none is printed as 0.
    const { stdout } = await diff('agent.0001/0')
    expect(stdout).toMatch(/^A {2}agent\.0000\/0 +running, 2 calls\nB {2}agent\.0001\/0 +running, 2 calls\n/)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})
