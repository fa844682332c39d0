/**
 * Lists the processes of a sandbox's sessions: the children of each namespace's first process, whose parent is a
 * zygote.
 */
import { readdirSync, readFileSync } from 'node:fs'
import type { Sandbox } from '../../sandbox'

type Zygotes = Sandbox & { readonly zygotePids?: readonly number[] }

export interface SessionProcess {
  readonly pid: number
  /** State as in /proc: R runs, S sleeps, T is stopped, …; X: the process has ended. */
  readonly doing: string
}

export function processesOf(sandbox: Zygotes): readonly SessionProcess[] {
  return children(sandbox).flatMap(init => below(init))
}

/** Returns the number of the zygotes' child processes, then the number of open descriptors of each zygote. */
export function heldBy(sandbox: Zygotes): readonly number[] {
  const descriptors = (sandbox.zygotePids ?? []).map(pid => readdirSync(`/proc/${pid}/fd`).length)
  return [children(sandbox).length, ...descriptors]
}

const children = ({ zygotePids = [] }: Zygotes) => zygotePids.flatMap(pid => below(pid).map(({ pid }) => pid))

function below(parent: number): SessionProcess[] {
  return read(`/proc/${parent}/task/${parent}/children`)
    .split(' ')
    .filter(Boolean)
    .map(pid => ({ pid: Number(pid), doing: /\) (\S)/.exec(read(`/proc/${pid}/stat`))?.[1] ?? 'X' }))
}

function read(path: string): string {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return '' // the process has ended
  }
}
