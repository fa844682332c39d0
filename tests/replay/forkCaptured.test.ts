/** A session of the gateway is not forked by replay, which has not its tools: the refusal says who can. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { planForks } from '../../replay/fork/planForks'
import { openLog } from '../../replay/log/recordedRun'
import { openTroupe } from '../../runtime/embed'
import { openRun } from '../../runtime/openRun'
import { openTestGateway } from '../support/gateway/openTestGateway'
import { refused } from '../support/refusal'

test('a captured session is refused before weights are looked for, with the command by which its gateway forks it', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-fork-'))
  try {
    const bus = `lmdb:${directory}`
    const context = await openRun(bus, 'r', 'write')
    const over = await openTroupe({ bus: context.bus, blobs: context.blobs, run: 'r' })
    const gateway = await openTestGateway(() => 'hello', { over })
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
    } finally {
      await recorded.close()
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})
