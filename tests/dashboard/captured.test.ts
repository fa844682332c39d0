/**
 * A session that the gateway captured, on the page: its calls as a tree, with what each added and why it branched; their
 * generation in the timeline; the parent of a fork.
 */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Lanes, Paged, Part, TrajectoryLine, TrajectoryReport } from '../../dashboard/api'
import { openDashboard } from '../../dashboard/server/openDashboard'
import type { TrajectoryForked } from '../../messages/facts'
import { runId, trajectoryId } from '../../messages/ids'
import { openTroupe } from '../../runtime/embed'
import { runDirectory } from '../../runtime/runDirectory'
import { openTestGateway, type TestGateway } from '../support/gateway/openTestGateway'
import { changed, quickstartHistory, saveHistory } from '../support/histories'

jest.setTimeout(60_000)

const user = (content: string) => ({ role: 'user', content })
const sayTo =
  ({ post }: TestGateway, key = 'me') =>
  async (...messages: readonly object[]) => {
    const response = await post('/v1/chat/completions', { model: 'm', messages }, { authorization: `Bearer ${key}` })
    return ((await response.json()) as { choices: readonly { message: object }[] }).choices[0]!.message
  }

/** Asks the dashboard's server about run `r` after `write` has written it. */
async function withRun(
  write: (directory: string) => Promise<void>,
  use: (asked: <T>(path: string) => Promise<T>) => Promise<void>,
): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-captured-'))
  try {
    await write(directory)
    const dashboard = await openDashboard({ bus: `lmdb:${directory}`, port: 0, host: '127.0.0.1' })
    try {
      await use(async <T>(path: string) => (await (await fetch(`${dashboard.url}api/runs/r${path}`)).json()) as T)
    } finally {
      await dashboard.close()
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Writes run `r` by requests to a gateway. */
const captured = (talk: (gateway: TestGateway) => Promise<void>) => async (directory: string) => {
  const files = runDirectory(directory, runId('r'))
  mkdirSync(files.log, { recursive: true })
  const log = await openTroupe({ bus: `lmdb:${files.log}`, run: 'r' })
  const slowly = () => new Promise(resolve => setTimeout(resolve, 30))
  const gateway = await openTestGateway((_context, turn) => slowly().then(() => `answer ${turn}`), { over: log })
  await talk(gateway).finally(() => gateway.close())
  await log.close()
}

test('calls stand below the call that they continue, a branch one deeper, with its reason and its new messages alone', () =>
  withRun(
    captured(async gateway => {
      const say = sayTo(gateway)
      const first = await say(user('one'))
      await say(user('one'), first, user('two'))
      await say(user('one'), first, user('<script>other</script>'))
    }),
    async asked => {
      const { rows } = await asked<Paged<TrajectoryLine>>('/trajectories')
      const { parts, commands, truth, forkOf } = await asked<TrajectoryReport>(`/trajectories/${rows[0]!.trajectory}`)
      const calls = parts.filter((part): part is Extract<Part, { kind: 'captured' }> => part.kind === 'captured')
      const tree = calls.map(({ call, parent, depth, branch }) => ({ call, parent, depth, branch }))
      expect(tree).toEqual([
        { call: 0, parent: null, depth: 0, branch: 'first' },
        { call: 2, parent: 0, depth: 1, branch: expect.stringMatching(/./) },
        { call: 1, parent: 0, depth: 0, branch: '' },
      ])
      const texts = calls.map(({ messages, answer }) => [...messages.map(({ content }) => content.text), answer.text])
      expect(texts).toEqual([
        ['one', expect.stringContaining('answer 0')],
        ['<script>other</script>', expect.stringContaining('answer 2')],
        ['two', expect.stringContaining('answer 1')],
      ])
      expect(truth).toBeNull()
      expect(forkOf).toBeNull()
      // Its agent alone decides how such a session goes on, so the page does not offer to fork it or to decide again.
      const offered = commands.map(({ command }) => /(?:replay )?(\w+)/.exec(command.replace('npx troupe ', ''))![1])
      expect(offered).toEqual(['rescore', 'why', 'lineage'])
    },
  ))

test('a fork that the gateway made names its parent and its first own call; the timeline has the calls of both', () =>
  withRun(
    captured(async gateway => {
      const first = await sayTo(gateway)(user('one'))
      await sayTo(gateway)(user('one'), first, user('two'))
      const forked = await gateway.post('/troupe/v1/sessions/agent.0000%2F0/fork', { call_id: 1 })
      const { key } = (await forked.json()) as { key: string }
      await sayTo(gateway, key)(user('one'), first, user('three'))
    }),
    async asked => {
      const report = (id: string) => asked<TrajectoryReport>(`/trajectories/${id}`)
      expect((await report('agent.0000/0')).forkOf).toBeNull()
      const forkOf = { parent: 'agent.0000/0', run: 'r', turn: 2, unit: 'call' }
      expect((await report('agent.0001/0')).forkOf).toEqual(forkOf)
      const { rows } = await asked<Lanes>('/lanes?step=0')
      const generations = rows.map(({ trajectory, pieces, endsAt }) => {
        expect(endsAt).toBe(Math.max(...pieces.map(({ to }) => to)))
        return [trajectory, ...pieces.filter(({ kind }) => kind === 'generation').map(({ version }) => version)]
      })
      expect(generations).toEqual([
        ['agent.0000/0', 0, 0],
        ['agent.0001/0', 0],
      ])
    },
  ))

test('a fork of a rollout names its parent, the run of the parent and the first turn of its own', () => {
  const history = quickstartHistory()
  const child = trajectoryId('s0001.0000' as never, 0)
  const parent = trajectoryId('s0009.0000' as never, 3)
  const purpose = 'fork' as const
  const forks = changed(history, m =>
    m.type === 'rollout.requested' && m.trajectory === child ? { ...m, purpose } : m,
  )
  const fact: TrajectoryForked = { type: 'trajectory.forked', at: 1, parent, child, turn: 1, parentRun: runId('first') }
  const records = [...forks.records, { topic: 'runs' as const, partition: 0, message: fact, timestamp: 1 }]
  return withRun(
    directory => saveHistory(directory, { ...forks, run: runId('r'), records }),
    async asked => {
      expect((await asked<TrajectoryReport>(`/trajectories/${child}`)).forkOf).toEqual({
        ...{ parent, run: 'first', turn: 1, unit: 'turn' },
      })
      expect((await asked<TrajectoryReport>('/trajectories/s0001.0000/1')).forkOf).toBeNull()
    },
  )
})
