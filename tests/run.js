#!/usr/bin/env node
/**
 * `npm test`: every suite but those on request (sglang, trackers, compose). lint, unit and sandbox keep both cores busy and
 * run one after the other; the others wait half of their time for brokers, servers and downloads, so they run in two lanes
 * at once.
 * Usage: node tests/run.js [SUITE …]
 *
 * in   test files by suite (runner/files.js), the runners' reports     out  a table, and last the line "N passed, N failed, N skipped"
 * Invariant: a runner that crashes, hangs or reports no test at all is a failure, never silence.
 */
const fs = require('node:fs')
const path = require('node:path')
const {
  biome,
  check,
  cleanUpAtExit,
  closingLine,
  jest,
  pytest,
  root,
  runAndCount,
  total,
  types,
} = require('./runner/commands')
const { suiteFolders, testFilesOf } = require('./runner/files')

const jestSuite = (suite, workers) => jest(suite, testFilesOf(root, suite), workers)

/**
 * `setup` and `commands` run one after the other; the commands of a suite that says `together`, at once. A suite that says
 * `onRequest` runs only if it is named.
 */
const suites = {
  lint: { limitMinutes: 5, together: true, commands: () => [biome(), types()] },
  // One worker more than cores, since tests wait for processes, restarts and deadlines.
  unit: { limitMinutes: 20, commands: () => [jestSuite('unit', '--maxWorkers=3')] },
  sandbox: { limitMinutes: 5, commands: () => [jestSuite('sandbox', '--maxWorkers=2')] },
  // Real namespaces, overlays and runc: where the machine has none of them, these tests are skipped with a message.
  containers: { limitMinutes: 5, commands: () => [jestSuite('containers', '--runInBand')] },
  pytest: { limitMinutes: 15, commands: () => [pytest('pytest', ['policy'])] },
  // Real brokers: one cluster after the other, or they would take each other's time for a fault.
  kafka: { limitMinutes: 20, commands: () => [jestSuite('kafka', '--runInBand')] },
  // Real engines and trainers: two files at once, since a run of one waits for the other half of the time: a start loads
  // torch on one thread, and small models train on one.
  slice: { limitMinutes: 30, commands: () => [jestSuite('slice', '--maxWorkers=2')] },
  // The packages of environments (0.9 GB) and the agents of others (0.9 GB) are fetched here too.
  environments: {
    limitMinutes: 15,
    setup: () => [
      check('set-up of environments', process.execPath, ['cli/setup.js', '--environments']),
      check('set-up of harnesses', process.execPath, ['tests/support/gateway/harnesses/setup.js']),
    ],
    commands: () => [jestSuite('environments', '--runInBand')],
  },
  // A real vLLM server. Its 6 GB are fetched here, not by set-up: whoever leaves this suite out need not have them.
  vllm: {
    limitMinutes: 25,
    setup: () => [
      check('set-up of vLLM', process.execPath, ['cli/setup.js', '--vllm']),
      check('set-up of SmolLM2', process.execPath, ['cli/bin.js', 'setup', 'smollm2']),
    ],
    commands: () => [jestSuite('vllm', '--runInBand')],
  },
  // A real SGLang server (npm run test:sglang): another 7 GB, which a run of every suite would have to fetch too.
  sglang: {
    limitMinutes: 30,
    onRequest: true,
    setup: () => [check('set-up of SGLang', process.execPath, ['cli/setup.js', '--sglang'])],
    commands: () => [jestSuite('sglang', '--runInBand')],
  },
  // Real wandb, Trackio, MLflow and TensorBoard (npm run test:trackers): 1 GB.
  trackers: {
    limitMinutes: 20,
    onRequest: true,
    setup: () => [
      check('set-up of wandb', process.execPath, ['cli/setup.js', '--wandb']),
      check('set-up of tracker servers', process.execPath, ['tests/trackers/setUp.js']),
    ],
    commands: () => [jestSuite('trackers', '--runInBand')],
  },
  // docker-compose.yml under a real engine (npm run test:compose). The first build of the image fetches torch.
  compose: {
    limitMinutes: 75,
    onRequest: true,
    commands: () => [jestSuite('compose', '--runInBand')],
  },
}

/** Lanes run at once, the suites of a lane one after the other. Every suite that no lane names runs before them, alone. */
const lanes = [
  ['kafka', 'vllm'],
  ['pytest', 'environments', 'slice'],
]

async function runSuite(name) {
  const { limitMinutes, together, setup = () => [], commands } = suites[name]
  const began = performance.now()
  const run = command => {
    process.stderr.write(`\n== ${name}: ${command.title}\n`)
    return runAndCount(command, limitMinutes * 60_000 - (performance.now() - began))
  }
  const results = []
  for (const command of setup()) results.push(await run(command))
  if (together) results.push(...(await Promise.all(commands().map(run))))
  else for (const command of commands()) results.push(await run(command))
  const notes = results.flatMap(result => result.notes)
  return { ...total(results), name, notes, seconds: (performance.now() - began) / 1000 }
}

async function runInOrder(names) {
  const results = []
  for (const name of names) results.push(await runSuite(name))
  return results
}

async function main(names) {
  const present = Object.keys(suites).filter(
    name => !suiteFolders.includes(name) || fs.existsSync(path.join(__dirname, name)),
  )
  const unknown = names.find(name => !present.includes(name))
  if (unknown !== undefined) {
    console.error(`no suite '${unknown}': ${present.join(', ')}`)
    return 2
  }
  cleanUpAtExit()
  const asked = names.length > 0 ? names : present.filter(name => !suites[name].onRequest)
  const began = performance.now()
  const alone = asked.filter(name => !lanes.flat().includes(name))
  const inLanes = lanes.map(lane => lane.filter(name => asked.includes(name)))
  const results = [...(await runInOrder(alone)), ...(await Promise.all(inLanes.map(runInOrder))).flat()]
  const all = total(results)
  const row = cells => cells.map((cell, i) => (i === 0 ? String(cell).padEnd(13) : String(cell).padStart(9))).join('')
  console.log(`\n${row(['suite', 'seconds', 'share', 'passed', 'failed', 'skipped'])}`)
  for (const { name, seconds, passed, failed, skipped } of results) {
    const share = `${Math.round((100 * seconds) / all.seconds)} %`
    console.log(row([name, seconds.toFixed(1), share, passed, failed, skipped]))
  }
  console.log(`${Math.round((performance.now() - began) / 1000)} s in all`)
  for (const note of results.flatMap(result => result.notes)) console.log(note)
  console.log(closingLine(all))
  return all.failed === 0 ? 0 : 1
}

main(process.argv.slice(2)).then(code => {
  process.exitCode = code
})
