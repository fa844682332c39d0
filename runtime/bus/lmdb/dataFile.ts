/**
 * Checks the data file of a log before it is read, and before lmdb opens and maps it.
 *
 * in   a log's directory, the mode      out  its sizes, or a named error
 * Invariant: nothing but a regular file is opened: a FIFO would block. A file that is not lmdb's is refused here, and
 * the sizes show one that is too short: mapping either would end the process with a signal, and so may an opening that
 * fails inside lmdb (see lockFile.ts).
 */
import { constants, statSync } from 'node:fs'
import { join } from 'node:path'
import { pathKind, refusal } from '../../disk/pathKind'
import { lmdbErrors, refusedOpening } from './errors'
import { DamagedPage, type Meta, PageFile } from './pages/pageFile'

export interface DataFile {
  readonly bytes: number
  /**
   * Size of the data file in bytes according to the newer meta page. The file may be shorter: lmdb leaves unused pages
   * at the end unwritten.
   */
  readonly wantedBytes: number
}

/**
 * Checks that data.mdb is a regular file that can be opened in this mode. Returns false if there is none.
 * @throws TroupeError bus.not_a_log, bus.no_access
 */
export function checkDataFile(directory: string, mode: 'write' | 'read' = 'read'): boolean {
  const path = join(directory, 'data.mdb')
  const found = pathKind(path)
  if (found.kind === 'nothing') return false
  if (found.kind === 'fault' && found.code !== undefined) throw lmdbErrors.noAccess(path, found.why)
  if (found.kind === 'fault') throw lmdbErrors.notALog(directory, `data.mdb ${found.why}`)
  if (found.kind === 'directory') throw lmdbErrors.notALog(directory, 'data.mdb is a directory, not a file')
  const code = refusal(path, constants.R_OK | (mode === 'write' ? constants.W_OK : 0))
  if (code !== undefined) {
    throw lmdbErrors.noAccess(path, refusedOpening(mode, code, found.stats))
  }
  return true
}

/**
 * Reads the sizes of the data file; undefined when there is no file, or an empty one. A damaged meta page is ignored.
 * @throws TroupeError bus.not_a_log when it is not a file of lmdb; bus.no_access; bus.torn on a read error
 */
export function inspectDataFile(directory: string, mode: 'write' | 'read' = 'read'): DataFile | undefined {
  const path = join(directory, 'data.mdb')
  if (!checkDataFile(directory, mode) || statSync(path).size === 0) return undefined
  let file: PageFile | undefined
  try {
    file = PageFile.open(path)
    if (file === undefined) throw lmdbErrors.notALog(directory, 'data.mdb is not an lmdb file')
    let newest: Meta | undefined
    for (const page of [0, 1] as const) {
      try {
        const meta = file.meta(page)
        if (newest === undefined || meta.transaction > newest.transaction) newest = meta
      } catch (thrown) {
        if (!(thrown instanceof DamagedPage)) throw thrown
      }
    }
    return { bytes: file.bytes, wantedBytes: ((newest?.lastPage ?? 0) + 1) * file.pageBytes }
  } catch (thrown) {
    throw thrown instanceof DamagedPage ? lmdbErrors.damagedPage(directory, thrown.page, thrown.why) : thrown
  } finally {
    file?.close()
  }
}
