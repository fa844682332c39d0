/** `troupe rehearse`: a whole run of a small recipe with every kind of event, without a lost rollout. */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { endAll, type Running, troupe } from '../../support/cli'
import '../../support/ownForkServers' // the report counts the memory of the run's processes

jest.setTimeout(600_000)

const folder = mkdtempSync(join(tmpdir(), 'troupe-rehearse-test-'))
const running: Running[] = []
afterAll(async () => {
  await endAll(running)
  rmSync(folder, { recursive: true, force: true })
})

const small = [
  ...['rollout.groupsPerStep=4', 'rollout.groupSize=4', 'selection.keep=2', 'selection.minPositive=1'],
  ...['selection.minNegative=1', 'selection.refillShare=1', 'evaluation.problems=3', 'evaluation.samples=2'],
  ...['train.ranks=2', 'train.nodes=1', 'hardware.gpus=2'],
].flatMap(field => ['--set', field])

function parsed(stdout: string, stderr: string) {
  if (stdout === '') throw new Error(`no report: ${stderr}`)
  return JSON.parse(stdout)
}

test('a directory that has files is refused, and its files stay', async () => {
  const used = mkdtempSync(join(folder, 'used-'))
  writeFileSync(join(used, 'mine'), 'kept')
  const run = troupe(['rehearse', 'rstar2', '--dir', used], { TMPDIR: folder }, folder)
  running.push(run)
  expect(await run.done).toMatchObject({ code: 2, stderr: expect.stringContaining(`--dir ${used} has files`) })
  expect(readdirSync(used)).toEqual(['mine'])
})

test('rstar2, made small: all stages, evaluations, checkpoints and publications happen, and no rollout is lost', async () => {
  const run = troupe(['rehearse', 'rstar2', '--all-stages', '--json', ...small], { TMPDIR: folder }, folder)
  running.push(run)
  const { code, stdout, stderr } = await run.done
  const line = parsed(stdout, stderr)
  expect(line).toMatchObject({
    type: 'rehearsal',
    recipe: 'rstar2',
    outcome: 'done',
    tallied: {
      rollouts: { lost: 0, open: 0, lostBecause: {} },
      steps: { completed: 3, rejected: 0 },
      stages: ['cold-start', 'concise', 'longer', 'difficult'],
      evaluations: 4,
      publications: 4,
      groups: { closedByDeadline: 0 },
      enginesLeft: {},
      refused: 0,
    },
  })
  const { rollouts, measurements, checkpoints, weightUpdates, toolCalls, turns } = line.tallied
  // 4 evaluations of 3 problems × 2; 4 problems × 8 measured; 3 steps of at least 4 groups × 4.
  expect(rollouts.requested).toBeGreaterThanOrEqual(24 + 32 + 48)
  expect(rollouts.rewarded).toBe(rollouts.requested)
  expect([measurements, checkpoints]).toEqual([1, 2])
  expect(weightUpdates).toBe(4 * line.engines)
  expect(toolCalls.failed).toBeGreaterThan(0)
  expect(turns.completed).toBeGreaterThan(rollouts.requested)
  expect(line.trained.assembled).toBeGreaterThan(line.trained.given)
  expect(line.clock.simulatedSeconds).toBeGreaterThan(100)
  expect(line.real.generationSeconds).toBeGreaterThan(10)
  expect(line.log.fileBytes).toBeGreaterThan(1e6)
  expect(line.memory.find(({ part }: { part: string }) => part === 'trainer').residentMib).toBeGreaterThan(50)
  expect(line.changes).toContainEqual({ path: 'coldStart.demonstrations', from: 222_000, to: 64 })
  expect(code).toBe(0)
  expect(readdirSync(folder).filter(entry => entry.startsWith('troupe-rehearsal-'))).toEqual([])
})

test.each(['gsm8k-qwen2.5-0.5b', 'math-qwen3-4b-lora'])(
  '%s, made small: a step on its one engine, and no rollout is lost',
  async name => {
    const fewer = ['rollout.groupsPerStep=4', 'evaluation.problems=8', 'evaluation.samples=1']
    const set = fewer.flatMap(field => ['--set', field])
    const run = troupe(['rehearse', name, '--json', ...set], { TMPDIR: folder }, folder)
    running.push(run)
    const { code, stdout, stderr } = await run.done
    const line = parsed(stdout, stderr)
    // 4 groups of 16, and two evaluations of 8 problems.
    const rollouts = { rewarded: line.tallied.rollouts.requested, lost: 0, open: 0 }
    expect(line).toMatchObject({
      outcome: 'done',
      engines: 1,
      tallied: { rollouts, steps: { completed: 1 }, evaluations: 2 },
    })
    expect(rollouts.rewarded).toBeGreaterThanOrEqual(4 * 16 + 2 * 8)
    expect(code).toBe(0)
  },
)

test('a rehearsal whose groups are closed before their rollouts end says how many it lost, and exits with 1', async () => {
  // Just above the estimate's lower bound, below which the run is refused at its start.
  const tools = ['--set', 'limits.toolTimeoutMs=2000']
  const tight = [...tools, '--set', 'rollout.deadlineMs=61000', '--set', 'evaluation.problems=0']
  const run = troupe(['rehearse', 'rstar2', '--json', ...small, ...tight], { TMPDIR: folder }, folder)
  running.push(run)
  const { code, stdout, stderr } = await run.done
  const { tallied } = parsed(stdout, stderr)
  expect(tallied.rollouts.lost).toBeGreaterThan(0)
  expect(tallied.rollouts.lostBecause['group-closed']).toBe(tallied.rollouts.lost)
  expect(tallied.groups.closedByDeadline).toBeGreaterThan(0)
  expect(code).toBe(1)
})
