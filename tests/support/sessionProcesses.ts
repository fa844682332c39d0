/** The processes of a sandbox's sessions, below those of their zygotes that hold the namespaces; each with what it does. */
import { readdirSync, readFileSync } from 'node:fs'
import type { Sandbox } from '../../sandbox'

type Zygotes = Sandbox & { readonly zygotePids?: readonly number[] }

export interface SessionProcess {
  readonly pid: number
  /** R, S, T, … as /proc has it. */
  readonly doing: string
}

export function processesOf(sandbox: Zygotes): readonly SessionProcess[] {
  return children(sandbox).flatMap(init => below(init))
}

/** Namespaces and descriptors of the zygotes. */
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
    return '' // it has gone
  }
}
