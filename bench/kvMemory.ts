/**
 * Compares the memory that a local engine reserves for keys and values with what `engine.kvTokens` promises.
 *
 * Each case is an engine of its own, over a model of 24 layers on the CPU: the same budget under contexts of 512, 4,096
 * and 16,384 tokens, and in deterministic mode. Rollouts of 16 to 200 tokens and one of half a context share the
 * budget for two turns. Reserved are the bytes of all tensors that hold keys and values, at their largest, as the
 * Python process measures them; promised is kvTokens times the bytes of a token.
 */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { pythonEnvironment, pythonPath } from '../runtime/python'
import { atLeast, atMost, type BenchReport, describeMachine, printReport } from './report'

interface Case {
  readonly name: string
  readonly contextTokens: number
  readonly kvTokens: number
  readonly deterministic: boolean
}

/** Figures that kvArm.py prints; reserved and promised are in bytes. */
interface Figures {
  readonly reserved: number
  readonly promised: number
  readonly sampled: number
  readonly preemptions: number
}

const cases: readonly Case[] = [
  { name: 'context 512', contextTokens: 512, kvTokens: 4096, deterministic: false },
  { name: 'context 4,096', contextTokens: 4096, kvTokens: 4096, deterministic: false },
  { name: 'context 16,384', contextTokens: 16_384, kvTokens: 16_384, deterministic: false },
  { name: 'context 4,096, deterministic', contextTokens: 4096, kvTokens: 4096, deterministic: true },
]

/** Tokens that the 24 rollouts of a case sample in two turns of 24 tokens. */
const expectedTokens = 24 * 2 * 24
const caseTimeoutMs = 600_000

export async function bench(): Promise<BenchReport> {
  const measured = cases.map(one => ({ ...one, ...measure(one) }))
  return {
    bench: 'kvMemory',
    machine: describeMachine(),
    metrics: Object.fromEntries(
      measured.flatMap(({ name, reserved, promised, preemptions }) => [
        [`${name}: reserved MiB`, reserved / 2 ** 20],
        [`${name}: promised MiB`, promised / 2 ** 20],
        [`${name}: preemptions`, preemptions],
      ]),
    ),
    budgets: measured.flatMap(({ name, reserved, promised, sampled }) => [
      atMost(`${name}: reserved over promised`, reserved / promised, 1.1),
      atLeast(`${name}: tokens sampled, share of those asked for`, sampled / expectedTokens, 1),
    ]),
  }
}

function measure({ contextTokens, kvTokens, deterministic }: Case): Figures {
  const script = join(__dirname, 'support/arms/kvArm.py')
  const args = [script, '--context', `${contextTokens}`, '--kv-tokens', `${kvTokens}`]
  const text = execFileSync(pythonPath(), deterministic ? [...args, '--deterministic'] : args, {
    env: pythonEnvironment({ HF_HUB_OFFLINE: '1' }),
    timeout: caseTimeoutMs,
    encoding: 'utf8',
  })
  return JSON.parse(text) as Figures
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
