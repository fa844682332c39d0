import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, get } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { train } from '../../../cli/train'
import { runMetrics, serveMetrics } from '../../../cli/train/metrics'
import type { GenerateTurn } from '../../../messages/commands'
import { engineId, epoch, groupId, trajectoryId } from '../../../messages/ids'
import { completed } from '../../support/facts'

test('a run’s facts are served as Prometheus metrics; on loopback, to requests for loopback alone', async () => {
  const lines: string[] = []
  const write = jest.spyOn(process.stderr, 'write').mockImplementation(text => lines.push(String(text)) > 0)
  const server = await serveMetrics({ host: '127.0.0.1', port: 0 })
  write.mockRestore()
  try {
    const measure = runMetrics(server.registry)
    const trajectory = trajectoryId(groupId('g'), 0)
    measure(completed({ trajectory, turn: 0, attempt: 0 } as GenerateTurn, 'x'))
    measure({ type: 'step.completed', at: 0, step: 3, epoch: epoch(0), version: 3 as never, metrics: { loss: 0.25 } })
    measure({ type: 'ledger.status', at: 0, engine: engineId('e0'), driftTokens: -48, foreignTokens: 16 })
    measure({ type: 'alarm.raised', at: 0, alarm: 'entropy-low', message: 'why' })
    measure({ type: 'evaluation.completed', at: 0, name: 'held-out', n: 4, passAt1: 0.5 } as never)
    measure({ type: 'evaluation.completed', at: 0, name: 'held-out', n: 0, passAt1: 0 } as never)
    const url = /http:\/\/127\.0\.0\.1:\d+\/metrics/.exec(lines.join(''))![0]
    const text = await (await fetch(url)).text()
    expect(text).toContain('troupe_sampled_tokens_total{engine="e0"} 5')
    expect(text).toContain('troupe_ledger_drift_tokens{engine="e0"} -48')
    expect(text).toContain('troupe_ledger_foreign_tokens{engine="e0"} 16')
    expect(text).toContain('troupe_step 3')
    expect(text).toContain('troupe_evaluation_pass_at_1{evaluation="held-out"} 0.5')
    expect(text).toContain('troupe_alarms_total{alarm="entropy-low"} 1')
    expect(text).toContain('troupe_alarms_total{alarm="stalled"} 0')
    expect(text).toContain('troupe_training{metric="loss"} 0.25')
    expect((await fetch(url.replace('/metrics', '/other'))).status).toBe(404)
    const rebound = await new Promise(resolve =>
      get(url, { headers: { host: 'evil.example' } }, reply => resolve(reply.resume().statusCode)),
    )
    expect(rebound).toBe(421)
    await expect(serveMetrics({ host: '127.0.0.1', port: Number(new URL(url).port) })).rejects.toMatchObject({
      code: 'cli.port_taken',
    })
  } finally {
    server.close()
  }
})

test('a port that is taken ends train with nothing of the run held', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-metrics-'))
  const other = createServer()
  await new Promise<void>(resolve => other.listen(0, '127.0.0.1', resolve))
  const options = { bus: `lmdb:${directory}`, run: 'r', set: [], json: true }
  const begin = () =>
    train('quickstart', { ...options, metrics: { host: '127.0.0.1', port: (other.address() as AddressInfo).port } })
  try {
    await expect(begin()).rejects.toMatchObject({ code: 'cli.port_taken' })
    await expect(begin()).rejects.toMatchObject({ code: 'cli.port_taken' })
    expect(process.listenerCount('SIGINT')).toBe(0)
  } finally {
    other.close()
    rmSync(directory, { recursive: true, force: true })
  }
})
