/**
 * Measures a run of a thousand concurrent agents: forks of a Python function, each of which makes one call through the
 * gateway, on engines that answer at once.
 *
 * in   one group of 1,000 rollouts
 * out  the time from the first opening to the last end; CPU time of this process
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Fact } from '../messages/facts'
import { agentRun } from '../tests/support/gateway/agentRun'
import { scriptedEngine } from '../tests/support/gateway/scriptedEngine'
import { until } from '../tests/support/until'
import { atLeast, atMost, type BenchReport, describeMachine, printReport } from './report'

const count = 1000
const longestMs = 240_000

export async function bench(): Promise<BenchReport> {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-bench-agents-'))
  const file = join(__dirname, '../tests/support/gateway/agentFunction.py')
  const cpu = process.cpuUsage()
  const run = await agentRun(
    directory,
    { file, reward: 'agent', atOnce: count, deadlineMs: longestMs },
    { groupSize: count, engine: scriptedEngine(() => 'answer', { maxSequences: count }) },
  )
  const ends = (facts: readonly Fact[]) => facts.filter(fact => fact.type === 'rollout.finished')
  try {
    await until(async () => ends(await run.facts()).length >= count, longestMs, 1000)
    const facts = await run.facts()
    const opened = facts.flatMap(fact => (fact.type === 'session.opened' ? [fact.at] : []))
    const ended = ends(facts)
    const answered = ended.filter(({ outcome }) => outcome === 'answered').length
    const calls = facts.filter(fact => fact.type === 'call.finished' && fact.finish !== 'failed').length
    const seconds = (Math.max(...ended.map(({ at }) => at)) - Math.min(...opened)) / 1000
    const { user, system } = process.cpuUsage(cpu)
    return {
      ...{ bench: 'agents', machine: describeMachine() },
      metrics: { agents: count, seconds, calls, ownCpuMsPerAgent: (user + system) / 1000 / count },
      budgets: [
        atLeast('agents that ended well', answered, count),
        atMost('calls beside agents', calls / count, 1),
        atMost('1,000 agents, seconds', seconds, 120),
      ],
    }
  } finally {
    await run.close()
    rmSync(directory, { recursive: true, force: true })
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
