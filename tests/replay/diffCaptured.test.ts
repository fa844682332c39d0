/** Two different sessions of the gateway under `replay diff` (where they part) and `replay limits` (not known). */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { endingLine } from '../../cli/replay/diff'
import { runId } from '../../messages/ids'
import { openLog } from '../../replay/log/recordedRun'
import { diffTrajectories } from '../../replay/trajectories/diffTrajectories'
import { readTrajectory } from '../../replay/trajectories/trajectory'
import { limitOutcome } from '../../replay/whatIf/limitOutcome'
import { openTroupe } from '../../runtime/embed'
import { runDirectory } from '../../runtime/runDirectory'
import { encodeChars } from '../support/gateway/charRenderer'
import { openTestGateway } from '../support/gateway/openTestGateway'

jest.setTimeout(60_000)

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
    for (const [key, next] of [
      ['a', 'and grass?'],
      ['b', 'and grass?'],
      ['c', 'and wood?'],
    ] as const)
      await say(key, user('what is blue?'), await say(key, user('what is blue?')), user(next))
    await close()
    await log.close()
    const recorded = await openLog({ bus: `lmdb:${directory}`, run: 'r' })
    const [a, b, c] = await Promise.all([0, 1, 2].map(n => readTrajectory(recorded, `agent.000${n}/0`)))
    await recorded.close()

    // 'blue sky' and 'blue sea' share six characters, each a token, after the same prompt.
    const [first, , other] = engine.sampled
    expect(diffTrajectories(a!, b!)).toMatchObject({
      common: first!.context.length + 'blue s'.length,
      a: { where: 'answer of call 0', token: encodeChars('k')[0], logprob: first!.logprobs[6], policyVersion: 0 },
      b: { where: 'answer of call 0', token: encodeChars('e')[0], logprob: other!.logprobs[6] },
    })
    const said = diffTrajectories(a!, c!)!
    expect(said).toMatchObject({
      a: { where: 'messages of call 1', token: encodeChars('g')[0], logprob: null },
      b: { where: 'messages of call 1', token: encodeChars('w')[0], logprob: null },
    })
    const [second, last] = [engine.sampled[1]!, engine.sampled[5]!]
    expect([...second.context].slice(0, said.common)).toEqual([...last.context].slice(0, said.common))
    // A session that has not ended has no count of tool calls and no reward yet, so none is printed.
    expect(endingLine('A', a!)).toMatch(/^A {2}agent\.0000\/0 +running, 2 calls$/)
    // Other limits would change what the agent asks next, which the log cannot say.
    expect(limitOutcome(a!, { turns: 1 }, () => undefined)).toMatchObject({ kind: 'generate', fromTurn: 0 })
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})
