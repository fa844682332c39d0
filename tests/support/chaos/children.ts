/**
 * The child processes of a `troupe` process, by kind, as /proc shows them.
 *
 * in   a process        out  its children: renderers, engines, trainers, zygotes, reward processes; whether each serves
 * Invariant: a child is listed from the moment that its program runs. What the fork server forks counts as a child of its
 * parent; forks of a zygote, and helpers that a child starts, are not listed.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'

export const childKinds = ['renderer', 'engine', 'trainer', 'zygote', 'reward'] as const
/** A fork server is not among those that are killed beside one another: its forks die with it. */
export type ChildKind = (typeof childKinds)[number] | 'forkServer'

export interface Child {
  readonly pid: number
  readonly kind: ChildKind
  /** True once it answers, as far as that can be seen from outside. */
  readonly serves: boolean
}

const services: Readonly<Record<string, ChildKind>> = { render: 'renderer', engine: 'engine', trainer: 'trainer' }
/** Seconds of age from which zygotes and reward processes, whose starts leave no trace outside, are taken to serve. */
const servesAfterS = 5
const ticksPerSecond = 100

export function childrenOf(parent: number): readonly Child[] {
  const upS = Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0])
  const forked = pidsBelow(parent).filter(isForkServer).flatMap(pidsBelow)
  return [...pidsBelow(parent), ...forked].flatMap(pid => {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      if (fields[0] === 'Z') return []
      const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
      const kind = kindOf(words)
      if (kind === undefined) return []
      const ageS = upS - Number(fields[19]) / ticksPerSecond
      const socket = words[words.indexOf('--socket') + 1]!.replace(/^unix:/, '')
      const serves = words.includes('--socket') ? existsSync(socket) : ageS > servesAfterS
      return [{ pid, kind, serves }]
    } catch {
      return [] // it has ended
    }
  })
}

/** The children of each thread of a process. A look at all processes would take the time in which a child starts. */
function pidsBelow(parent: number): readonly number[] {
  try {
    return readdirSync(`/proc/${parent}/task`).flatMap(thread =>
      readFileSync(`/proc/${parent}/task/${thread}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
    )
  } catch {
    return [] // the process, or one of its threads, has ended
  }
}

function isForkServer(pid: number): boolean {
  try {
    return kindOf(readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')) === 'forkServer'
  } catch {
    return false // it has ended
  }
}

function kindOf(words: readonly string[]): ChildKind | undefined {
  if (words.some(word => word.endsWith('zygote.py'))) return 'zygote'
  if (words.includes('troupe_policy.reward.process')) return 'reward'
  if (words[2] === 'troupe_policy.fork_server') return 'forkServer'
  return words.includes('troupe_policy.server') ? services[words[words.indexOf('--serve') + 1]!] : undefined
}
