/** One measured step gives the rates of the time model: planted rates come back, and other steps are predicted by them. */
import { calibrated, stepSeconds } from '../../bench/support/calibration'
import { microBatchWork, type TrainedHow, updateBytes } from '../../config/estimate/trainingWork'

const shape = {
  hidden: 256,
  layers: 8,
  heads: 8,
  kvHeads: 2,
  headDim: 32,
  intermediate: 768,
  vocabulary: 8192,
  tied: false,
}
const how: TrainedHow = { shape, device: 'cpu', half: false, checkpointing: false, loraRank: undefined, ranks: 2 }
const work = (...micros: number[][]) => ({
  micros: micros.map(lengths => microBatchWork(how, { lengths, trained: lengths.reduce((a, b) => a + b) })),
  updateBytes: updateBytes(1e7, 2),
})
const one = work([512], [128, 128, 128, 128], [128])
const rates = { matrices: 2e-11, attention: 5e-11, bytes: 3e-10, update: 4e-11 }
const measured = (given: typeof one, by: typeof rates) => ({
  micros: given.micros.map(micro => stepSeconds({ micros: [micro], updateBytes: 0 }, by)),
  update: by.update * given.updateBytes,
})

test('rates of a machine come back from one step, and predict a step of other lengths', () => {
  const found = calibrated(one, measured(one, rates))
  for (const name of ['matrices', 'attention', 'bytes', 'update'] as const)
    expect(found[name] / rates[name]).toBeCloseTo(1, 6)
  const other = work([1024], [300, 200, 100])
  expect(stepSeconds(other, found) / stepSeconds(other, rates)).toBeCloseTo(1, 6)
})

test('no rate is negative, also where noise makes a long sequence cheaper than the same tokens in short ones', () => {
  const { micros, update } = measured(one, rates)
  const found = calibrated(one, { micros: [0.7 * micros[0]!, micros[1]!, micros[2]!], update })
  expect(found.attention).toBe(0)
  expect(Math.min(found.matrices, found.bytes)).toBeGreaterThan(0)
})

test('the square of attention: twice the length of all sequences is twice as much for each token', () => {
  const [short, long] = work([64, 64, 64, 64], [128, 128]).micros
  expect(long!.attention).toBe(2 * short!.attention)
  expect(long!.matrices).toBe(short!.matrices)
  // Sequences of similar length are padded to the longest of them, others are not.
  const [mixed, padded, apart] = work([100, 80], [100, 100], [100, 70]).micros
  expect(mixed!.attention).toBe(padded!.attention)
  expect(apart!.attention).toBeLessThan(padded!.attention)
})

test("attention's kernel on a CPU computes all pairs up to 512 tokens and leaves out whole blocks of keys beyond", () => {
  const pairs = (length: number, device: 'cpu' | 'cuda') =>
    microBatchWork({ ...how, device }, { lengths: [length], trained: length }).attention /
    (4 * 3.5 * shape.layers * shape.heads * shape.headDim)
  // Measured, scaled_dot_product_attention(is_causal) in float32 on one thread: 8.3, 6.3, 5.9, 4.7 ns a pair of all.
  expect([512, 768, 1024, 2048].map(length => pairs(length, 'cpu') / length ** 2)).toEqual([1, 7 / 9, 0.75, 0.625])
  expect(pairs(1024, 'cuda') / 1024 ** 2).toBeCloseTo(0.5, 3)
})
