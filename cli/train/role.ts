/**
 * `troupe train RECIPE --role R`, for every role except the learner: runs that role's share of a run that a learner has
 * started. stdout: with --json a line when the run is over; stderr: what the process waits for, that it is ready, logs.
 */
import { joinRun } from '../../actors/run/joinRun'
import type { Role, Run } from '../../actors/run/run'
import type { LoadedRecipe } from '../../recipes/load/loadRecipe'
import { collectedVersions } from '../../runtime/collectedVersions'
import { systemEffects } from '../../runtime/effects'
import { createLog } from '../../runtime/log'
import { openRun, type RunContext } from '../../runtime/openRun'
import { stopSignals } from '../io/signals'
import type { ListenAddress } from '../options/readers'
import { startAgents } from '../startAgents'
import { type MetricsServer, serveMetrics } from './metrics'
import { joinedConfig, waitForRun, whenBusIsThere } from './startedRun'

export interface RoleOptions {
  readonly bus: string
  readonly dir?: string
  readonly run: string
  readonly role: Exclude<Role, 'all' | 'learner'>
  readonly set: readonly string[]
  readonly json?: boolean
  readonly acceptCode?: boolean
  readonly metrics?: ListenAddress
}

const say = (text: string) => process.stderr.write(`${text}\n`)

/** Runs the role until the run is over. Resolves with the exit code: 0 however the run ended; 130 or 143 on signals. */
export async function takeRole({ recipe, config: own }: LoadedRecipe, options: RoleOptions): Promise<number> {
  const { role, run: id } = options
  const signals = stopSignals()
  let stopped = false
  signals.stopped.then(() => {
    stopped = true
  })
  const open = () => openRun(options.bus, id, 'write', options.dir)
  let context: RunContext | undefined
  let metrics: MetricsServer | undefined
  let run: Run | undefined
  try {
    context = await whenBusIsThere(open, say, () => stopped)
    if (context === undefined) return signals.exitCode()
    metrics = await serveMetrics(options.metrics)
    const started = await waitForRun(context, say, () => stopped)
    if (started === undefined) return signals.exitCode()
    const { run: name, files, bus, blobs } = context
    const { registry } = metrics
    const config = joinedConfig(started, own.value, options.set, options.acceptCode === true)
    run = await signals.starting(stop =>
      joinRun({
        ...{ role, recipe, config, bus, blobs, stop },
        run: name,
        partitions: started.partitions.trajectories ?? 1,
        directory: files.root,
        modelDirectory: files.model,
        resume: false,
        learns: true,
        acceptCode: options.acceptCode === true,
        fx: systemEffects,
        log: createLog('troupe'),
        metrics: registry,
        versions: collectedVersions(),
        startAgents,
        onStanding: standing => say(`${role} of run '${id}': ${standing === 'active' ? 'active' : 'standing by'}`),
      }),
    )
    if (run === undefined) return signals.exitCode()
    say(`${role} of run '${id}': ready`)
    const ended = await Promise.race([run.finished, signals.stopped])
    await run.close()
    const isStopped = typeof ended === 'string'
    const [outcome, reason] = isStopped ? ['stopped', ended] : [ended.outcome, ended.reason]
    if (options.json) process.stdout.write(`${JSON.stringify({ type: 'role', role, run: id, outcome, reason })}\n`)
    else say(`${role} of run '${id}': over, ${outcome}: ${reason}`)
    return isStopped ? signals.exitCode() : 0
  } finally {
    signals.release()
    metrics?.close()
    await run?.close() // the run is already closed, unless something failed
    await context?.bus.close()
  }
}
