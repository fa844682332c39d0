/** Finds the line of a YAML recipe that sets a field, so that an error can name it. */
import { readFileSync } from 'node:fs'
import { extname } from 'node:path'
import { isNode, LineCounter, parseDocument } from 'yaml'

/**
 * Returns the 1-based line of the field at `path`, or of the nearest field around it; undefined if the file sets
 * neither, or is not YAML or JSON.
 */
export function yamlLine(file: string, path: readonly string[]): number | undefined {
  if (!['.yaml', '.yml', '.json'].includes(extname(file))) return undefined
  const lines = new LineCounter()
  const document = parseDocument(readFileSync(file, 'utf8'), { lineCounter: lines })
  for (let length = path.length; length > 0; length--) {
    const found: unknown = document.getIn(path.slice(0, length), true)
    if (isNode(found) && found.range != null) return lines.linePos(found.range[0]).line
  }
  return undefined
}
