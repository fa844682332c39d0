/**
 * Decides which pages of a log's data file are checked before lmdb maps it. A whole check of a long log takes minutes.
 *
 * in   a log's directory, the mode      out  nothing, or the first damage
 * Invariants: a file below 32 MiB is checked whole. With 'unless known' a longer one is checked whole, with two
 * exceptions: nothing is checked if transaction, size, times and inode are those of its last whole check; and a reader
 * checks as with 'branches' while a living process writes the log, since the writer has checked the file. The state of
 * the file at its last whole check is stored below TROUPE_HOME and not beside the log: a reader writes nothing there.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, realpathSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { systemEffects } from '../../effects'
import { troupeHome } from '../../home'
import { type Holder, lives } from './holder'
import { metaEntry } from './metaValue'
import { findDamage } from './pages/checkPages'
import { DamagedPage, PageFile } from './pages/pageFile'

/**
 * Pages to check in a file of 32 MiB or more. `whole`: every page. `branches`: all but the leaf pages of records and
 * the free pages; for the log's own writer, which opens it again. `unless known`: every page; none if the file is
 * unchanged since its last whole check; as `branches` if it is opened for reading while a living writer has it.
 */
export type Check = 'whole' | 'branches' | 'unless known'

const longBytes = 32 * 1024 * 1024
/**
 * Milliseconds after a file's last change in which its state is not stored: another change could leave the same times.
 */
const settledMs = 100

export function checkFile(directory: string, mode: 'write' | 'read', check: Check): DamagedPage | undefined {
  const path = join(directory, 'data.mdb')
  if (check === 'whole' || statSync(path).size < longBytes) return findDamage(path)
  if (check === 'branches') return findDamage(path, { branchesOnly: true })
  const before = stateOf(path)
  if (before !== undefined && before === attempt(() => readFileSync(placeOf(path), 'utf8'))) return undefined
  if (mode === 'read') {
    let holder: Holder | null | undefined
    const damage = findDamage(path, {
      branchesOnly: true,
      entry(node, value) {
        const entry = metaEntry(node.key, value)
        if (entry?.key === 'writer') holder = entry.value as Holder | null
      },
    })
    if (damage || (holder && lives(holder, directory))) return damage
  }
  const isSettled = systemEffects.now() - statSync(path).ctimeMs > settledMs
  const damage = findDamage(path)
  if (damage === undefined && isSettled && before !== undefined && before === stateOf(path)) {
    attempt(() => {
      mkdirSync(join(troupeHome(), 'logs'), { recursive: true })
      writeFileSync(placeOf(path), before)
    })
  }
  return damage
}

/** Returns a text that identifies the file's present state; undefined while its meta pages are damaged. */
function stateOf(path: string): string | undefined {
  const file = PageFile.open(path)
  try {
    const transaction = file?.metas()[0].transaction
    const { dev, ino, size, mtimeNs, ctimeNs } = statSync(path, { bigint: true })
    return transaction === undefined ? undefined : [transaction, dev, ino, size, mtimeNs, ctimeNs].join(' ')
  } catch (thrown) {
    if (thrown instanceof DamagedPage) return undefined
    throw thrown
  } finally {
    file?.close()
  }
}

const placeOf = (path: string): string =>
  join(troupeHome(), 'logs', createHash('sha256').update(realpathSync(path)).digest('hex').slice(0, 32))

/**
 * Returns the result of `act`; undefined if it throws. A file's state that cannot be stored or read again is no error:
 * its only cost is that the file is checked whole.
 */
function attempt<T>(act: () => T): T | undefined {
  try {
    return act()
  } catch {
    return undefined
  }
}
