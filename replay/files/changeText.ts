/** Formats what a tool call changed in its environment: a line for each path, and below it the diff of a text file. */
import type { Store } from '../../environments'
import type { FilesChanged } from '../../messages/facts'
import { fileDiff } from './trajectoryFiles'

const marks = { added: 'A', changed: 'M', removed: 'D' } as const

export const restoredText = {
  snapshot: 'from the store',
  calls: 'by running earlier calls again',
  'other-files': 'by running earlier calls again, which left OTHER files than were recorded',
} as const

export interface ChangeLine {
  readonly line: string
  /** Diff of the file's text, as lines; absent if `fileDiff` gives none, or the texts are equal. */
  readonly diff?: readonly string[]
}

export function changeHead({ snapshot, changes, bytes, restored }: FilesChanged): string {
  const made = restored === undefined ? '' : `; environment made again ${restoredText[restored]}`
  return `files ${snapshot.slice(0, 12)}  ${changes} changed, ${bytes} bytes in all${made}`
}

/** @param store store of the snapshots; undefined: the lines name paths without diffs */
export function changeLines(files: FilesChanged, store: Pick<Store, 'root'> | undefined): readonly ChangeLine[] {
  const { changed, changes } = files
  const lines = changed.map((file): ChangeLine => {
    const diff = store === undefined ? undefined : fileDiff(store, files, file)
    const line = `${marks[file.change]} ${file.path}  ${file.bytes} bytes`
    return diff === undefined || diff.length === 0 ? { line } : { line, diff }
  })
  return changes > changed.length ? [...lines, { line: `… ${changes - changed.length} more` }] : lines
}

export const changeText = (files: FilesChanged, store: Pick<Store, 'root'>): string =>
  [
    changeHead(files),
    ...changeLines(files, store).flatMap(({ line, diff = [] }) => [line, ...diff.map(text => `  ${text}`)]),
  ].join('\n')
