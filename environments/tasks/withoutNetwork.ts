/**
 * A task without its network: `harbor task init` writes `network_mode = "public"` into every task.toml, also of tasks
 * that need none.
 *
 * in   a Task        out  the same Task with no network in any of its environments and phases
 * Invariant: used only where the user asks for it (`environments.network`, `--no-network`), and never to widen a
 * network.
 */
import type { Task, TaskStep } from './task'

type HasNetwork = { readonly network_mode?: string | undefined; readonly allowed_hosts?: string[] | undefined }

export function withoutNetwork(task: Task): Task {
  const step = (one: TaskStep): TaskStep => ({
    ...one,
    agent: unsaid(one.agent),
    verifier: unsaid(one.verifier),
    verifierEnvironment: { ...one.verifierEnvironment, ...none },
  })
  return {
    ...task,
    config: { ...task.config, environment: { ...task.config.environment, ...none } },
    steps: task.steps.map(step),
  }
}

const none = { network_mode: 'no-network', allowed_hosts: undefined, saysNetwork: true } as const

/** Returns the phase without a network of its own, so that it has the task's network. */
const unsaid = <T extends HasNetwork>(phase: T): T => ({ ...phase, network_mode: undefined, allowed_hosts: undefined })
