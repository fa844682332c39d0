/**
 * Overrides of a task: the user runs it without the network, or the limit on disk space, that its task.toml asks for.
 * `harbor task init` writes `network_mode = "public"` and `storage_mb` into every task.toml, needed or not.
 *
 * in   a Task, the overrides        out  the same Task, changed so in all its environments and phases
 * Invariant: used only where the user asks for it (`environments.network` and `.storage`, `--no-network`,
 * `--no-storage-limit`), and never to widen a network.
 */
import type { TaskEnvironment } from '../../messages/facts'
import type { Task, TaskStep } from './task'
import type { EnvironmentToml } from './taskToml'

/** no-network: no network at all. no-limit: the limit on disk space is not enforced. Absent: as the task says. */
export type TaskOverrides = Pick<TaskEnvironment, 'network' | 'storage'>

type HasNetwork = { readonly network_mode?: string | undefined; readonly allowed_hosts?: string[] | undefined }

export function withOverrides(task: Task, { network, storage }: TaskOverrides): Task {
  const inEnvironment = (environment: EnvironmentToml): EnvironmentToml => ({
    ...environment,
    ...(network === undefined ? {} : noNetwork),
    ...(storage === undefined ? {} : { limitsStorage: false }),
  })
  const inPhase = <T extends HasNetwork>(phase: T): T => (network === undefined ? phase : unsaid(phase))
  const step = (one: TaskStep): TaskStep => ({
    ...one,
    agent: inPhase(one.agent),
    verifier: inPhase(one.verifier),
    verifierEnvironment: inEnvironment(one.verifierEnvironment),
  })
  return {
    ...task,
    config: { ...task.config, environment: inEnvironment(task.config.environment) },
    steps: task.steps.map(step),
  }
}

const noNetwork = { network_mode: 'no-network', allowed_hosts: undefined, saysNetwork: true } as const

/** Returns the phase without a network of its own, so that it has the task's network. */
const unsaid = <T extends HasNetwork>(phase: T): T => ({ ...phase, network_mode: undefined, allowed_hosts: undefined })
