/**
 * Makes the directory of the new run that salvage writes, copies the damaged run's other files into it, and removes it
 * again if salvage fails, so that the next try does not meet a half-made run.
 *
 * in   the new run's address and name, what writes it      out  the new run, or the error and no trace of it
 * Invariant: only what was made here is removed. The run's directory is created by a `mkdir` that fails if it exists,
 * so of two processes one owns it.
 */
import { mkdirSync, rmdirSync, rmSync } from 'node:fs'
import { cp, readdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { RunId } from '../../messages/ids'
import { asError, type TroupeError } from '../../runtime/errors'
import { checkNewRun, directoryOf, openRun, type RunContext, runExists } from '../../runtime/openRun'
import { runDirectory } from '../../runtime/runDirectory'
import { isOutOfSpace } from '../../sandbox/outOfSpace'
import { replayError } from '../replayError'

/**
 * Opens a new run on lmdb and gives it to `write`, which closes its bus. @throws TroupeError run.exists,
 * replay.copy_failed; what `write` throws
 */
export async function withNewRun<T>(
  address: string,
  run: RunId,
  write: (context: RunContext) => Promise<T>,
): Promise<T> {
  checkNewRun(address, run)
  const { root } = runDirectory(directoryOf(address), run)
  let made: string | undefined
  try {
    made = mkdirSync(dirname(root), { recursive: true })
    mkdirSync(root)
  } catch (thrown) {
    removeEmpty(dirname(root), made)
    throw (thrown as NodeJS.ErrnoException).code === 'EEXIST' ? runExists(run) : failed(root, 'made', thrown)
  }
  try {
    return await write(await openRun(address, run, 'write'))
  } catch (thrown) {
    rmSync(root, { recursive: true, force: true })
    removeEmpty(dirname(root), made)
    throw thrown
  }
}

/** Removes empty directories from `path` upwards to `top`, the first one that was made; none if none was made. */
function removeEmpty(path: string, top: string | undefined): void {
  if (top === undefined) return
  try {
    rmdirSync(path)
  } catch {
    return // another process has put something there
  }
  if (path !== top) removeEmpty(dirname(path), top)
}

/** Copies the entries of a directory but `except`. @throws TroupeError replay.copy_failed */
export async function copyEntries(from: string, to: string, except: ReadonlySet<string>): Promise<void> {
  const notCopied = (path: string) => (thrown: unknown) => {
    throw failed(path, 'copied', thrown)
  }
  for (const entry of await readdir(from).catch(notCopied(from))) {
    const path = join(from, entry)
    if (!except.has(entry)) await cp(path, join(to, entry), { recursive: true }).catch(notCopied(path))
  }
}

const failed = (path: string, what: string, thrown: unknown): TroupeError =>
  replayError(
    'copy_failed',
    `${path} cannot be ${what}: ${asError(thrown).message}; the new run was removed again`,
    isOutOfSpace(thrown)
      ? 'free space there, or give --to lmdb:DIR on another disk'
      : "repair that path, or move it out of the damaged run's directory (verify then names what is missing), and salvage again; another target: --to lmdb:DIR",
    thrown,
  )
