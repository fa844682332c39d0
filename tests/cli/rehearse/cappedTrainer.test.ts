/** A rehearsal's trainer gets every sequence of the batch, cut to its first sampled tokens. */
import type { Trainer, TrainSequence } from '../../../backends/trainer/trainer'
import { cappedTrainer } from '../../../cli/rehearse/cappedTrainer'

const sequence = (prompt: number, sampled: number): TrainSequence => ({
  ...{ trajectory: 'g/0', advantage: 0.5, group: 3 },
  tokens: Int32Array.from({ length: prompt + sampled }, (_, k) => k),
  mask: Uint8Array.from({ length: prompt + sampled }, (_, k) => (k < prompt ? 0 : 1)),
  engineLogprobs: new Float32Array(prompt + sampled).fill(-1),
})

test('each sequence keeps its group, its advantage, and the sampled tokens that fit', async () => {
  const given: TrainSequence[] = []
  const trainer = {
    async step(sequences: readonly TrainSequence[]) {
      given.push(...sequences)
      return {}
    },
  } as unknown as Trainer
  const count = { sequences: 0, assembled: 0, given: 0 }
  await cappedTrainer(trainer, 8, count).step([sequence(100, 50), sequence(2, 3)], {} as never)
  expect(given.map(({ tokens }) => [...tokens])).toEqual([
    [99, 100, 101, 102, 103, 104, 105, 106],
    [0, 1, 2, 3, 4],
  ])
  expect(given.map(({ mask }) => mask.reduce((sum, one) => sum + one, 0))).toEqual([7, 3])
  expect(given.map(({ advantage, group }) => [advantage, group])).toEqual([
    [0.5, 3],
    [0.5, 3],
  ])
  expect(count).toEqual({ sequences: 2, assembled: 155, given: 13 })
})
