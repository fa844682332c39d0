/** The rate of an engine leaves out the time in which the run stood still, and a restart of its counter. */
import { Telemetry } from '../../dashboard/server/telemetry'
import type { RecordedRun } from '../../replay/log/recordedRun'

/** Telemetry of an engine, from pairs of a time in s and the tokens sampled since its start. */
async function telemetryOf(statuses: readonly (readonly [number, number])[]): Promise<Telemetry> {
  const messages = statuses.map(([s, generatedTokens]) => ({
    message: { type: 'engine.status', engine: 'local-0', at: s * 1000, generatedTokens },
  }))
  const recorded = {
    partitionsOf: () => 1,
    endOf: async () => messages.length,
    scan: async (_: string, take: (entry: object) => void) => {
      messages.forEach(take)
      return [{ topic: 'telemetry', partition: 0, offset: messages.length }]
    },
  }
  const telemetry = new Telemetry()
  await telemetry.refresh(recorded as unknown as RecordedRun)
  return telemetry
}

const rate = async (...statuses: readonly (readonly [number, number])[]) =>
  (await telemetryOf(statuses)).tokensPerSecond('local-0')

test('tokens a second are those of the time in which the engine reported', async () => {
  expect(await rate([0, 0], [1, 100], [2, 200])).toBe(100)
  expect(await rate([0, 0], [1, 100], [3601, 100], [3602, 200])).toBe(100) // an hour without a process
  expect(await rate([0, 500], [1, 600], [5, 0], [6, 100])).toBe(100) // another process of the engine counts from 0
  expect(await rate([0, 0], [1, 0], [2, 0])).toBe(0)
  expect(await rate([0, 0])).toBeNull()
  expect(await rate([0, 0], [3600, 100])).toBeNull()
})
