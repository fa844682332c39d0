/**
 * A session of the gateway is not forked by replay, which has not its tools: the refusal says who can. Nor are its
 * calls compared with decisions of today's code.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { RunStarted } from '../../messages/facts'
import { runId } from '../../messages/ids'
import { planForks } from '../../replay/fork/planForks'
import { openLog } from '../../replay/log/recordedRun'
import { replayTarget } from '../../replay/rerun/replayRun'
import { openTroupe } from '../../runtime/embed'
import { openRun } from '../../runtime/openRun'
import { openTestGateway } from '../support/gateway/openTestGateway'
import { quickstartHistory } from '../support/histories'
import { refused } from '../support/refusal'

test('a fork and a replay of a captured session are refused: the gateway forks it, and only agents decided', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-fork-'))
  try {
    const bus = `lmdb:${directory}`
    const context = await openRun(bus, 'r', 'write')
    const over = await openTroupe({ bus: context.bus, blobs: context.blobs, run: 'r' })
    const gateway = await openTestGateway(() => 'hello', { over })
    const started = quickstartHistory()
      .records.map(({ message }) => message)
      .find(m => m.type === 'run.started')
    await over.journal.append([{ ...(started as RunStarted), run: runId('r') }])
    const messages = [{ role: 'user', content: 'hi' }]
    await gateway.post('/v1/chat/completions', { model: 'm', messages }, { authorization: 'Bearer me' })
    await gateway.close()
    await over.close()
    await context.bus.close()
    const recorded = await openLog({ bus, run: 'r' })
    try {
      expect(await refused(planForks(recorded, 'agent.0000/0', { fromTurn: 0 }))).toMatchObject({
        code: 'replay.captured',
        hint: expect.stringContaining('/troupe/v1/sessions/agent.0000%2F0/fork'),
      })
      expect(await refused(replayTarget(recorded, 'agent.0000/0'))).toMatchObject({
        code: 'replay.captured',
        message: expect.stringContaining('agents decided the calls'),
      })
    } finally {
      await recorded.close()
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})
