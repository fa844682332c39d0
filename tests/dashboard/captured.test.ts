/** A session that the gateway captured, on the page: its calls as a tree, with what each added and why it branched. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Paged, Part, TrajectoryLine, TrajectoryReport } from '../../dashboard/api'
import { openDashboard } from '../../dashboard/server/openDashboard'
import { runId } from '../../messages/ids'
import { openTroupe } from '../../runtime/embed'
import { runDirectory } from '../../runtime/runDirectory'
import { openTestGateway } from '../support/gateway/openTestGateway'

jest.setTimeout(60_000)

test('calls stand below the call that they continue, a branch one deeper, with its reason and its new messages alone', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-captured-'))
  try {
    const bus = `lmdb:${directory}`
    const files = runDirectory(directory, runId('r'))
    mkdirSync(files.log, { recursive: true })
    const log = await openTroupe({ bus: `lmdb:${files.log}`, run: 'r' })
    const { post, close } = await openTestGateway((_context, turn) => `answer ${turn}`, { over: log })
    const user = (content: string) => ({ role: 'user', content })
    const say = async (...messages: readonly object[]) => {
      const response = await post('/v1/chat/completions', { model: 'm', messages }, { authorization: 'Bearer me' })
      return ((await response.json()) as { choices: readonly { message: object }[] }).choices[0]!.message
    }
    const first = await say(user('one'))
    await say(user('one'), first, user('two'))
    await say(user('one'), first, user('<script>other</script>'))
    await close()
    await log.close()

    const dashboard = await openDashboard({ bus, port: 0, host: '127.0.0.1' })
    const asked = async <T>(path: string) => (await (await fetch(`${dashboard.url}api/runs/r${path}`)).json()) as T
    const { rows } = await asked<Paged<TrajectoryLine>>('/trajectories')
    const { parts, commands, truth } = await asked<TrajectoryReport>(`/trajectories/${rows[0]!.trajectory}`)
    await dashboard.close()
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
    // Its agent alone decides how such a session goes on, so the page does not offer to fork it or to decide again.
    const offered = commands.map(({ command }) => /(?:replay )?(\w+)/.exec(command.replace('npx troupe ', ''))![1])
    expect(offered).toEqual(['rescore', 'why', 'lineage'])
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})
