#!/usr/bin/env node
/**
 * Set-up: npm packages, a Python venv with torch and with what sandboxed programs import, the code generated from
 * policy.proto, the bundle of the dashboard's page, compiled TypeScript, and the sandbox's C shim; or, with a part's
 * flag (--kafka, --vllm, …), only that part. An installed package needs only the venv and the shim.
 *
 * in   package-lock.json, policy/requirements*.txt, policy.proto
 * out  node_modules, .venv, troupe_policy/generated, the page's bundle, the shim; logs and caches in .cache
 * It runs before any package is installed, so it uses only Node. What Node needs and what Python needs are installed
 * at the same time. Every step but the shim, the page and the sources leaves a stamp with the digest of its inputs, and
 * is skipped while the digest is the same. An interrupted step leaves no new stamp and is done again.
 */
const { places } = require('./setup/places')
const { SetupError, say, seconds } = require('./setup/say')
const { withLock } = require('./setup/lock')
const npm = require('./setup/npm')
const python = require('./setup/python')
const sandboxPackages = require('./setup/sandboxPackages')
const generated = require('./setup/generated')
const shim = require('./setup/shim')
const page = require('./setup/page')
const sources = require('./setup/sources')
const kafka = require('./setup/kafka')
const vllm = require('./setup/vllm')
const sglang = require('./setup/sglang')
const environments = require('./setup/environments')
const wandb = require('./setup/wandb')
const packages = require('./setup/packages')

/** Optional parts of the set-up by their command-line flag. */
const parts = new Map([
  ['--kafka', kafka],
  ['--vllm', vllm],
  ['--sglang', sglang],
  ['--environments', environments],
  ['--wandb', wandb],
])

const usage = `usage: node cli/setup.js [--test | --omit-dev] [--python-only] [--without-torch] | --kafka | --vllm | --sglang |
                           --environments | --wandb | --packages NAME==VERSION …
  --test          also what only tests need (pytest, a Kafka broker)
  --omit-dev      without the npm packages that only tests, checks, benches and builds need
  --python-only   only the venv, the generated code and the sandbox's C shim
  --without-torch no torch: for judge, exec, grade, replay, simulate, dashboard and demo, which run no model
  --kafka         a Kafka broker, and nothing else
  --vllm          a vLLM server for CPUs, and nothing else
  --sglang        an SGLang server that runs on a CPU, and nothing else
  --environments  reasoning-gym and verifiers, and nothing else
  --wandb         Weights & Biases' own package, and nothing else
  --packages      these packages for sandboxed programs (tools.packages), and nothing else
environment: TROUPE_PYTHON    the interpreter to use (3.10 to 3.13)
             TROUPE_VENV      where the venv is, or shall be
             TROUPE_HOME      where an installed package keeps its venv (default ~/.cache/troupe)
             TROUPE_PIP_ARGS  added to pip install, e.g. '--extra-index-url https://download.pytorch.org/whl/cpu'
             TROUPE_MAVEN_ARGS  added to mvn, e.g. '-s settings.xml'
             TROUPE_KAFKA_LIBS  the libs folder of an unpacked Kafka, instead of fetching one
             TROUPE_VLLM_VENV  where the venv of vLLM is, or shall be
             TROUPE_SGLANG_VENV  where the venv of SGLang is, or shall be
             TROUPE_ENVIRONMENTS_VENV  where the venv of the environment packages is, or shall be
             TROUPE_WANDB_VENV  where the venv of the package wandb is, or shall be
             TROUPE_DISK_MB   free disk that set-up asks for before it installs torch`

function checkMachine() {
  const [major, minor] = process.versions.node.split('.').map(Number)
  if (major < 20 || (major === 20 && minor < 15)) {
    throw new SetupError(`Node ${process.versions.node} is too old for Troupe`, 'install Node 20.15 or newer')
  }
  if (process.platform === 'win32') throw new SetupError('Windows is not supported', 'run Troupe inside WSL 2')
}

async function runLane(steps) {
  for (const step of steps) {
    if (step.isDone()) continue // another set-up may have done this step while this one waited for the lock
    const began = performance.now()
    say(`${step.name}: ${step.says}`)
    try {
      await step.run()
    } catch (error) {
      if (!step.isOptional || !(error instanceof SetupError)) throw error
      say(`${step.name}: skipped: ${error.message}\n  hint: ${error.hint}`)
      continue
    }
    say(`${step.name}: done in ${seconds(performance.now() - began)}`)
  }
}

async function setUp(options) {
  checkMachine()
  const where = places()
  const ofNode = [npm.step(where, options), page.step(where), sources.step(where)]
  // A package ships the generated code; a checkout generates it.
  const ofPython = [
    python.step(where, options),
    sandboxPackages.step(where),
    ...(where.checkout && !options.withoutTorch ? [generated.step(where)] : []),
  ]
  // Lanes run at the same time, the steps of a lane one after another.
  const lanes =
    options.parts.length > 0
      ? [options.parts.map(part => part.step(where, options.packages))]
      : [
          where.checkout && !options.pythonOnly ? ofNode : [],
          ofPython,
          [shim.step(where)],
          // Optional: without Java the other test suites still run; the kafka suite then fails and names the reason.
          options.test && !options.pythonOnly ? [{ ...kafka.step(where), isOptional: true }] : [],
        ]
  if (lanes.flat().every(step => step.isDone())) return false
  await withLock(where.lock, async () => {
    const ends = await Promise.allSettled(lanes.map(runLane))
    const failed = ends.find(end => end.status === 'rejected')
    if (failed) throw failed.reason
  })
  return true
}

async function main(given) {
  const end = given.includes('--packages') ? given.indexOf('--packages') : given.length
  const argv = given.slice(0, end)
  const known = new Set(['--test', '--omit-dev', '--python-only', '--without-torch', ...parts.keys()])
  if (argv.includes('--help') || argv.includes('-h')) {
    console.log(usage)
    return 0
  }
  const wrong = argv.find(word => !known.has(word))
  if (wrong !== undefined) {
    console.error(`setup: unknown argument '${wrong}'\n${usage}`)
    return 2
  }
  const began = performance.now()
  try {
    const worked = await setUp({
      test: argv.includes('--test'),
      omitDev: argv.includes('--omit-dev') && !argv.includes('--test'),
      withoutTorch: argv.includes('--without-torch'),
      pythonOnly: argv.includes('--python-only'),
      parts: [
        ...[...parts].filter(([flag]) => argv.includes(flag)).map(([, part]) => part),
        ...(end < given.length ? [packages] : []),
      ],
      packages: given.slice(end + 1),
    })
    say(worked ? `ready after ${seconds(performance.now() - began)}` : 'up to date')
    return 0
  } catch (error) {
    if (!(error instanceof SetupError)) throw error
    console.error(`\nsetup: ${error.message}`)
    if (error.detail) console.error(error.detail.replace(/^/gm, '  | '))
    console.error(`  hint: ${error.hint}`)
    return 1
  }
}

if (require.main === module) {
  main(process.argv.slice(2)).then(
    code => {
      process.exitCode = code
    },
    error => {
      console.error(error)
      process.exitCode = 1
    },
  )
}
