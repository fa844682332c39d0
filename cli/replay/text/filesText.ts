/**
 * Formats the files that a tool call changed, with the difference of each text if the store of snapshots has it.
 *
 * in   the `files` of a `tool.completed`        out  lines for a terminal, escaped
 */
import type { Store } from '../../../environments'
import type { FilesChanged } from '../../../messages/facts'
import { changeHead, changeLines } from '../../../replay/files/changeText'
import { escapeForTerminal, painter } from '../../io/terminal'

const paint = painter(process.stdout)

/** @param store store of snapshots; undefined: only the paths are printed */
export function filesText(
  files: FilesChanged,
  store: Pick<Store, 'root'> | undefined,
  indented: (text: string, mark: string) => string[],
): string[] {
  return [
    paint(files.restored === 'other-files' ? 'red' : 'dim', `  ${changeHead(files)}`),
    ...changeLines(files, store).flatMap(({ line, diff }) => [
      `    ${escapeForTerminal(line)}`,
      ...(diff === undefined ? [] : indented(diff.join('\n'), paint('dim', '      │'))),
    ]),
  ]
}
