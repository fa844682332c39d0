/**
 * Compares the learner with TRL's GRPO: the same model (SmolLM2-135M's shape), the same batch, the same loss, on the
 * CPU.
 *
 * Two processes alternate step by step; then two more do so with activation checkpointing (TRL's own default). A step
 * is loss, gradient, clipping and AdamW. Rates are compared between neighbouring steps; memory is the peak of a
 * process minus its memory after all imports. The first step of each warms up, and its gradient norm shows that both
 * compute the same. Our trainer cuts the batch into micro-batches; TRL runs it whole, as it does by default.
 */
import { type ChildProcessByStdio, execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { endedHow, TroupeError } from '../runtime/errors'
import { pythonEnvironment, pythonPath } from '../runtime/python'
import { atLeast, atMost, type BenchReport, describeMachine, median, printReport } from './report'

const steps = 3
const threads = 2
const script = join(__dirname, 'support/arms/learnerArm.py')
const answerTimeoutMs = 600_000

interface Measured {
  readonly seconds: number
  readonly cpuSeconds: number
  readonly gradNorm: number
  readonly tokens: number
  readonly peakBytes: number
}

interface Arm {
  readonly name: string
  step(): Promise<Measured>
  close(): void
}

const environment = () =>
  pythonEnvironment({
    OMP_NUM_THREADS: String(threads),
    GOMP_SPINCOUNT: '100000',
    HF_HUB_OFFLINE: '1',
    TOKENIZERS_PARALLELISM: 'false',
  })

async function startArm(name: string, model: string, kind: 'ours' | 'trl', checkpointing: boolean): Promise<Arm> {
  const args = [script, '--arm', kind, '--model', model, '--threads', String(threads)]
  const child: ChildProcessByStdio<Writable, Readable, Readable> = spawn(
    pythonPath(),
    checkpointing ? [...args, '--checkpointing'] : args,
    { stdio: ['pipe', 'pipe', 'pipe'], env: environment() },
  )
  let tail = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    tail = (tail + text).slice(-4000)
  })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const ended = new Promise<never>((_, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => reject(failed(name, endedHow(code, signal), tail)))
  })
  ended.catch(() => {})
  async function answer<T>(): Promise<T> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(failed(name, `sent no answer for ${answerTimeoutMs} ms`, tail)), answerTimeoutMs)
    })
    try {
      const { value, done } = await Promise.race([lines.next(), ended, late])
      if (done === true) return await ended
      return JSON.parse(value) as T
    } finally {
      clearTimeout(timer)
    }
  }
  await answer()
  return {
    name,
    async step() {
      child.stdin.write('step\n')
      return answer<Measured>()
    },
    close: () => void child.kill('SIGKILL'),
  }
}

function failed(name: string, how: string, tail: string): TroupeError {
  return new TroupeError('bench.arm_failed', {
    boundary: 'process',
    retriable: false,
    message: `the arm ${name} ${how}; the end of its stderr:\n${tail}`,
    hint: tail.includes("No module named 'trl'")
      ? 'node cli/setup.js --test installs TRL'
      : 'run bench/support/arms/learnerArm.py by hand to see more',
  })
}

export async function bench(): Promise<BenchReport> {
  const folder = mkdtempSync(join(tmpdir(), 'troupe-learner-bench-'))
  const model = join(folder, 'model')
  try {
    execFileSync(pythonPath(), [script, '--arm', 'make', '--model', model], { env: environment(), timeout: 300_000 })
    const [ours, trl] = await pair(model, false)
    const [oursAgain, trlAgain] = await pair(model, true)
    return reportOf(ours, trl, oursAgain, trlAgain)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Measures steps of our trainer and of TRL's, which alternate. */
async function pair(
  model: string,
  checkpointing: boolean,
): Promise<readonly [readonly Measured[], readonly Measured[]]> {
  const arms: Arm[] = []
  const measured: readonly [Measured[], Measured[]] = [[], []]
  try {
    for (const kind of ['ours', 'trl'] as const) arms.push(await startArm(kind, model, kind, checkpointing))
    for (let k = 0; k <= steps; k++) {
      for (const at of k % 2 === 0 ? [0, 1] : [1, 0]) {
        const one = await arms[at]!.step()
        measured[at]!.push(one)
        const again = checkpointing ? ', activations computed again' : ''
        const text = `${one.seconds.toFixed(2)} s, gradient norm ${one.gradNorm.toFixed(6)}`
        process.stderr.write(`step ${k} of ${arms[at]!.name}${again}: ${text}\n`)
      }
    }
    return measured
  } finally {
    for (const arm of arms) arm.close()
  }
}

function reportOf(
  ours: readonly Measured[],
  trl: readonly Measured[],
  oursAgain: readonly Measured[],
  trlAgain: readonly Measured[],
): BenchReport {
  const rate = (arm: readonly Measured[]) => arm[0]!.tokens / median(arm.slice(1).map(one => one.seconds))
  const peak = (arm: readonly Measured[]) => arm.at(-1)!.peakBytes
  const ratio = (one: readonly Measured[], other: readonly Measured[]) =>
    median(one.slice(1).map((measured, k) => other[k + 1]!.seconds / measured.seconds))
  const mib = (bytes: number) => bytes / 2 ** 20
  return {
    bench: 'learner',
    machine: describeMachine(),
    metrics: {
      oursTokensPerSecond: rate(ours),
      trlTokensPerSecond: rate(trl),
      oursCheckpointingTokensPerSecond: rate(oursAgain),
      trlCheckpointingTokensPerSecond: rate(trlAgain),
      oursPeakMiB: mib(peak(ours)),
      trlPeakMiB: mib(peak(trl)),
      oursCheckpointingPeakMiB: mib(peak(oursAgain)),
      trlCheckpointingPeakMiB: mib(peak(trlAgain)),
      checkpointingSpeedRatio: ratio(oursAgain, trlAgain),
      checkpointingMemoryRatio: peak(oursAgain) / peak(trlAgain),
      oursCpuSeconds: median(ours.slice(1).map(one => one.cpuSeconds)),
      trlCpuSeconds: median(trl.slice(1).map(one => one.cpuSeconds)),
      tokensPerStep: ours[0]!.tokens,
      steps,
    },
    budgets: [
      atLeast("tokens/s, times TRL's", ratio(ours, trl), 1.5),
      atMost("peak memory, times TRL's", peak(ours) / peak(trl), 0.5),
      atMost(
        "difference of the first step's gradient norm, relative",
        Math.abs(ours[0]!.gradNorm / trl[0]!.gradNorm - 1),
        1e-4,
      ),
    ],
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
