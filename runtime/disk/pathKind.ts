/**
 * Says what a path leads to, so that a program opens regular files only: reading a FIFO would wait without end, and a
 * directory gives an error without its path.
 *
 * in   a path      out  what is there after following links, or why that cannot be told
 * Invariant: nothing is opened. A link that leads nowhere is a fault, not nothing.
 */
import { accessSync, constants, lstatSync, type Stats, statSync } from 'node:fs'

export type PathKind =
  | { readonly kind: 'file' | 'directory'; readonly stats: Stats }
  /** Neither a file nor a link is there. */
  | { readonly kind: 'nothing' }
  /**
   * `why`: the end of a sentence that begins with the path, such as "is a FIFO". `code`: the system's error code, such
   * as EACCES, if it gave one.
   */
  | { readonly kind: 'fault'; readonly why: string; readonly code?: string | undefined }

export function pathKind(path: string): PathKind {
  try {
    const stats = statSync(path)
    if (stats.isFile()) return { kind: 'file', stats }
    if (stats.isDirectory()) return { kind: 'directory', stats }
    return { kind: 'fault', why: `is ${special(stats)}` }
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException
    if (code === 'ENOENT')
      return isLink(path) ? { kind: 'fault', why: 'is a link that leads nowhere' } : { kind: 'nothing' }
    if (code === 'ELOOP') return { kind: 'fault', why: 'is a link that leads back to itself' }
    if (code === 'ENOTDIR') return { kind: 'fault', why: 'lies below a file, where a directory was expected' }
    return { kind: 'fault', why: `cannot be looked at (${code})`, code }
  }
}

/** Says why a path cannot be read as `wanted`: the end of a sentence that begins with the path; undefined if it can. */
export function unreadable(path: string, wanted: 'file' | 'directory'): string | undefined {
  const found = pathKind(path)
  if (found.kind === 'nothing') return 'is missing'
  if (found.kind === 'fault') return found.why
  if (found.kind !== wanted) return `is a ${found.kind}, not a ${wanted}`
  const code = refusal(path, wanted === 'file' ? constants.R_OK : constants.R_OK | constants.X_OK)
  return code === undefined ? undefined : `cannot be read (${code}): ${whose(found.stats)}`
}

/** Returns the code with which the system refuses this access; undefined if it grants it. */
export function refusal(path: string, access: number): string | undefined {
  try {
    accessSync(path, access)
    return undefined
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code ?? 'unknown error'
  }
}

/** Names the owner and the mode of a file, and the user of this process. */
export function whose({ uid, gid, mode }: Stats): string {
  const me = process.getuid?.()
  const user = me === undefined ? '' : `; this process runs as user ${me}`
  return `it belongs to user ${uid} and group ${gid}, with mode ${(mode & 0o7777).toString(8).padStart(3, '0')}${user}`
}

function special(stats: Stats): string {
  if (stats.isFIFO()) return 'a FIFO'
  return stats.isSocket() ? 'a socket' : 'a device'
}

const isLink = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true
