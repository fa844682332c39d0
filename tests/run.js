#!/usr/bin/env node
/**
 * `npm test`: every suite but those on request (sglang, trackers). unit keeps both cores busy, and only lint runs
 * beside it, which has no deadline; the others wait for brokers, servers and deadlines too, so two of them run at once.
 * What suites install is fetched meanwhile.
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
const { shareForkServer } = require('./runner/forkServer')

const jestSuite = (suite, workers) => jest(suite, testFilesOf(root, suite), workers)

/** A set-up of its own, which gives way to tests: they run at the same time. */
const setUp = (title, ...args) => check(title, 'nice', ['-n', '5', process.execPath, ...args])

/**
 * The commands of a suite run one after the other; where it says `together`, at once. Before them ends its `setup`, which
 * begins while other suites run. A suite that says `onRequest` runs only if it is named. `limitMinutes` ends a suite that
 * hangs; it is about three times the suite's time on two quiet cores, since other work on a machine must not look like a hang.
 */
const suites = {
  lint: { limitMinutes: 10, together: true, commands: () => [biome(), types()] },
  // One worker more than cores, since tests wait for processes, restarts and deadlines.
  unit: { limitMinutes: 40, commands: () => [jestSuite('unit', '--maxWorkers=3')] },
  sandbox: { limitMinutes: 15, commands: () => [jestSuite('sandbox', '--maxWorkers=2')] },
  // Real namespaces, overlays and cgroups: where the machine has none of them, these tests are skipped with a message.
  containers: { limitMinutes: 20, commands: () => [jestSuite('containers', '--runInBand')] },
  pytest: { limitMinutes: 15, commands: () => [pytest('pytest', ['policy'])] },
  // Real brokers: one cluster after the other, or they would take each other's time for a fault.
  kafka: { limitMinutes: 30, commands: () => [jestSuite('kafka', '--runInBand')] },
  // Real engines and trainers, one file after the other: other suites run beside it, and three files at once make each
  // other miss deadlines and save no time.
  slice: { limitMinutes: 60, commands: () => [jestSuite('slice', '--runInBand')] },
  // The packages of environments (0.9 GB) and the agents of others (0.9 GB) are fetched here too.
  environments: {
    limitMinutes: 25,
    setup: () => [
      setUp('set-up of environments', 'cli/setup.js', '--environments'),
      setUp('set-up of harnesses', 'tests/support/gateway/harnesses/setup.js'),
    ],
    commands: () => [jestSuite('environments', '--runInBand')],
  },
  // Real vLLM servers. Their 2 GB beside torch are fetched here, not by set-up: whoever leaves this suite out need not have them.
  vllm: {
    limitMinutes: 40,
    setup: () => [
      setUp('set-up of vLLM', 'cli/setup.js', '--vllm'),
      setUp('set-up of SmolLM2', 'cli/bin.js', 'setup', 'smollm2'),
    ],
    commands: () => [jestSuite('vllm', '--runInBand')],
  },
  // A real SGLang server (npm run test:sglang): another 7 GB, which a run of every suite would have to fetch too.
  sglang: {
    limitMinutes: 30,
    onRequest: true,
    setup: () => [setUp('set-up of SGLang', 'cli/setup.js', '--sglang')],
    commands: () => [jestSuite('sglang', '--runInBand')],
  },
  // Real wandb, Trackio, MLflow and TensorBoard (npm run test:trackers): 1 GB.
  trackers: {
    limitMinutes: 20,
    onRequest: true,
    setup: () => [
      setUp('set-up of wandb', 'cli/setup.js', '--wandb'),
      setUp('set-up of tracker servers', 'tests/trackers/setUp.js'),
    ],
    commands: () => [jestSuite('trackers', '--runInBand')],
  },
  // docker-compose.yml under a real engine, alone: containers have no core to themselves. Skipped where no engine answers,
  // and before the image's first build, which only `npm run test:compose` makes: it fetches torch, hence its limit.
  compose: {
    limitMinutes: process.env.TROUPE_TEST_BUILD === 'first' ? 75 : 15,
    commands: () => [jestSuite('compose', '--runInBand')],
  },
}

/**
 * Stages run one after the other. Of a stage two suites run at once, begun in the order of the list: the longest
 * first, so that both end at about the same time. A suite that no stage names runs alone at the end.
 */
const stages = [
  ['lint', 'unit'],
  ['slice', 'vllm', 'kafka', 'environments', 'pytest', 'containers', 'sandbox'],
]
const atOnce = 2

/** Begins the set-ups of the suites, one after the other, since each takes the lock of the set-up. */
function beginSetUps(names) {
  const results = new Map()
  let latest = Promise.resolve()
  for (const name of names) {
    const { limitMinutes, setup = () => [] } = suites[name]
    latest = latest.then(async () => {
      const own = []
      for (const command of setup()) own.push(await runAndCount(command, limitMinutes * 60_000))
      return own
    })
    results.set(name, latest)
  }
  return results
}

async function runSuite(name, setUps) {
  const { limitMinutes, together, setup, commands } = suites[name]
  const arrived = performance.now()
  const results = setup === undefined ? [] : [...(await setUps.get(name))]
  const began = performance.now()
  const run = command => {
    process.stderr.write(`\n== ${name}: ${command.title}\n`)
    return runAndCount(command, limitMinutes * 60_000 - (performance.now() - began))
  }
  if (together) results.push(...(await Promise.all(commands().map(run))))
  else for (const command of commands()) results.push(await run(command))
  const notes = results.flatMap(result => result.notes)
  return { ...total(results), name, notes, seconds: (performance.now() - arrived) / 1000 }
}

/** Runs the suites in the order of the stages. */
async function runInStages(names) {
  const setUps = beginSetUps(names)
  const results = []
  const others = names.filter(name => !stages.flat().includes(name)).map(name => [name])
  for (const stage of [...stages, ...others]) {
    const waiting = stage.filter(name => names.includes(name))
    const lane = async () => {
      for (let name = waiting.shift(); name !== undefined; name = waiting.shift())
        results.push(await runSuite(name, setUps))
    }
    await Promise.all(Array.from({ length: atOnce }, lane))
  }
  const order = [...stages, ...others].flat()
  return results.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name))
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
  shareForkServer()
  const asked = names.length > 0 ? names : present.filter(name => !suites[name].onRequest)
  const began = performance.now()
  const results = await runInStages(asked)
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
