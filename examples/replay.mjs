/** Reads the log of a run, finished or live, and prints answers: `node replay.mjs lmdb:.troupe quickstart`. */
import { explainSelection, listTrajectories, openLog, readTrajectory, replayRun, verifyRun } from 'troupe/replay'

const [bus = 'lmdb:.troupe', run] = process.argv.slice(2)
const log = await openLog({ bus, ...(run ? { run } : {}) }) // without `run`: the newest run

// Rewarded rollouts with a failed tool call: RoC (the paper's resample on correct) keeps fewer of them.
const failed = await listTrajectories(log, { purpose: 'train', reward: '>0', toolErrors: true })
console.log(`${failed.length} rewarded trajectories with failed calls`)

const [first = (await listTrajectories(log))[0]] = failed
const trajectory = await readTrajectory(log, first.trajectory)
for (const { message } of trajectory.entries) {
  if (message.type === 'turn.completed') console.log(`model  ${JSON.stringify(message.text)}`)
  if (message.type === 'tool.completed') console.log(`tool   ${message.status}: ${JSON.stringify(message.text)}`)
}

// What each selection would keep of the trajectory's group, computed from the rewards and the seed in the log.
const { group, variants, agrees } = await explainSelection(log, trajectory.id)
for (const [name, { outcome, keptPositives, keptNegatives }] of Object.entries(variants)) {
  console.log(`${group} ${name}: ${outcome}, ${keptPositives} positives and ${keptNegatives} negatives`)
}
console.log(`today's code decides as the log says: ${agrees}`)

const { same, divergences } = await replayRun(log) // takes every decision of coordinator and grouper again
console.log(`${same} decisions are the same, ${divergences.length} differ`)
const { ok, counted, problems } = await verifyRun(log)
console.log(`${ok ? 'sound' : problems[0].message}: ${counted.turns} turns of ${counted.trajectories} trajectories`)
await log.close()
