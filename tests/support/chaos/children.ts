/**
 * Lists the child processes of a `troupe` process by kind, from /proc.
 *
 * in   a process        out  its children: renderers, engines, trainers, zygotes, reward processes; whether each serves
 * Invariant: a child is listed as soon as its program runs. A process that the fork server forks counts as a child of
 * the fork server's parent; forks of a zygote, and helpers that a child starts, are not listed.
 */
import { existsSync, readFileSync } from 'node:fs'
import { forkServersFor, pidsBelow, wordsOf } from '../sharedForks'

export const childKinds = ['renderer', 'engine', 'trainer', 'zygote', 'reward'] as const
/** `forkServer` is not in `childKinds`, whose members are killed independently: its forks die with it. */
export type ChildKind = (typeof childKinds)[number] | 'forkServer'

export interface Child {
  readonly pid: number
  readonly kind: ChildKind
  /** True if the child answers requests, as far as its socket or its age shows. */
  readonly serves: boolean
}

const services: Readonly<Record<string, ChildKind>> = { render: 'renderer', engine: 'engine', trainer: 'trainer' }
/** Age in seconds from which a zygote or a reward process counts as serving, since it has no socket that shows it. */
const servesAfterS = 5
const ticksPerSecond = 100

export function childrenOf(parent: number): readonly Child[] {
  const upS = Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0])
  const below = [...pidsBelow(parent), ...forkServersFor(parent)]
  const forked = below.filter(isForkServer).flatMap(pidsBelow)
  return [...below, ...forked].flatMap(pid => {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      if (fields[0] === 'Z') return []
      const words = wordsOf(pid)
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

const isForkServer = (pid: number): boolean => kindOf(wordsOf(pid)) === 'forkServer'

function kindOf(words: readonly string[]): ChildKind | undefined {
  if (words.some(word => word.endsWith('zygote.py'))) return 'zygote'
  if (words.includes('troupe_policy.reward.process')) return 'reward'
  if (words[2] === 'troupe_policy.fork_server') return 'forkServer'
  return words.includes('troupe_policy.server') ? services[words[words.indexOf('--serve') + 1]!] : undefined
}
