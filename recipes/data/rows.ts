/**
 * Reads rows of published data sets: JSON lines, one JSON array, one JSON object over several lines, or parquet. The
 * first bytes of a file, and the endings .parquet and .json, decide which.
 *
 * in   files, or directories of them        out  one row at a time with its position
 * Invariant: only a path that cannot be read, a directory without data files, or a broken parquet file or JSON array
 * makes it throw; a line that is not JSON is a row of undefined. One row group of a parquet file is in memory at a
 * time; a JSON array is read whole.
 */
import { createReadStream } from 'node:fs'
import { open, readdir, readFile, stat } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { parseExactJson } from '../../kernels'
import { asError, TroupeError } from '../../runtime/errors'
import { withoutBom } from '../../runtime/settings/withoutBom'

export interface ReadRow {
  /** Parsed content of the row; undefined if the line is not JSON. */
  readonly row: unknown
  /** Position of the row, 1-based: `file:line`; in an array or a parquet file, `file:` and the row's number. */
  readonly place: string
}

const kinds = /\.(jsonl|json|ndjson|parquet)$/i

/**
 * Returns the file itself, or the data files in a directory and its subdirectories, sorted by their paths in it; all as
 * absolute paths. @throws TroupeError config.no_data if the path cannot be read, or the directory has no data file
 */
export async function dataFiles(path: string): Promise<readonly string[]> {
  const absolute = resolve(path)
  const found = await stat(absolute).catch(thrown => {
    throw noData(`${absolute} cannot be read: ${asError(thrown).message}`, 'give a readable file or directory')
  })
  if (!found.isDirectory()) return [absolute]
  const names = (await readdir(absolute, { recursive: true })).filter(name => kinds.test(name)).sort()
  if (names.length > 0) return names.map(name => join(absolute, name))
  throw noData(
    `${absolute} holds no .jsonl, .json or .parquet file`,
    'give a file with rows, or a directory of such files',
  )
}

export async function* rowsOfFile(file: string): AsyncGenerator<ReadRow> {
  const name = basename(file)
  const { magic, first, head } = await headOf(file)
  if (magic === 'PAR1' || /\.parquet$/i.test(file)) yield* parquetRows(file, name)
  else if (first === '[') yield* arrayRows(file, name)
  else if (isOneObject(file, head)) yield* documentRow(file, name)
  else yield* lineRows(file, name)
}

/** True for a `.json` file of one object over several lines, such as an ATIF trajectory. */
const isOneObject = (file: string, head: string) => /\.json$/i.test(file) && /^\s*\{\s*\n/.test(head)

async function* documentRow(file: string, name: string): AsyncGenerator<ReadRow> {
  yield { row: parsed(withoutBom(await readFile(file, 'utf8'))), place: `${name}:1` }
}

async function headOf(file: string): Promise<{ magic: string; first: string; head: string }> {
  const handle = await open(file).catch(thrown => {
    throw noData(`${file} cannot be read: ${asError(thrown).message}`, 'give a readable file')
  })
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(256), 0, 256, 0)
    const text = buffer.toString('latin1', 0, bytesRead)
    return {
      magic: text.slice(0, 4),
      head: text.replace(/^\xef\xbb\xbf/, ''),
      first: text
        .replace(/^\xef\xbb\xbf/, '')
        .trimStart()
        .slice(0, 1),
    }
  } finally {
    await handle.close()
  }
}

async function* lineRows(file: string, name: string): AsyncGenerator<ReadRow> {
  const input = createReadStream(file, 'utf8')
  const lines = createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })
  let line = 0
  for await (const text of lines) {
    line++
    const bare = line === 1 ? withoutBom(text) : text
    if (bare.trim() !== '') yield { row: parsed(bare), place: `${name}:${line}` }
  }
}

async function* arrayRows(file: string, name: string): AsyncGenerator<ReadRow> {
  const rows = parsed(withoutBom(await readFile(file, 'utf8')))
  if (!Array.isArray(rows)) {
    throw noData(
      `${file} begins like a JSON array, but is not valid JSON`,
      'download the file again, or give one row on each line (JSONL)',
    )
  }
  for (const [at, row] of rows.entries()) yield { row, place: `${name}:${at + 1}` }
}

async function* parquetRows(file: string, name: string): AsyncGenerator<ReadRow> {
  // Both packages are ES modules, which a CommonJS file must load by import().
  const [{ asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects }, { compressors }] = await Promise.all([
    import('hyparquet'),
    import('hyparquet-compressors'),
  ])
  try {
    const buffer = await asyncBufferFromFile(file)
    const metadata = await parquetMetadataAsync(buffer)
    let rowStart = 0
    for (const group of metadata.row_groups) {
      const rowEnd = rowStart + Number(group.num_rows)
      const rows = await parquetReadObjects({ file: buffer, metadata, compressors, rowStart, rowEnd })
      for (const [at, row] of rows.entries()) yield { row: plain(row), place: `${name}:${rowStart + at + 1}` }
      rowStart = rowEnd
    }
  } catch (thrown) {
    throw noData(
      `${file} cannot be read as parquet: ${asError(thrown).message}`,
      'download the file again, or give it as JSONL',
    )
  }
}

/** Converts parquet's values, whose 64-bit integers are BigInts and whose times are Dates, to JSON's. */
function plain(value: unknown): unknown {
  if (typeof value === 'bigint') {
    return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : String(value)
  }
  if (value instanceof Date) return value.toISOString()
  if (Array.isArray(value)) return value.map(plain)
  if (ArrayBuffer.isView(value)) return Array.from(value as unknown as ArrayLike<unknown>, plain)
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(inner)]))
}

function parsed(text: string): unknown {
  try {
    return parseExactJson(text)
  } catch {
    return undefined
  }
}

export const noData = (message: string, hint: string) =>
  new TroupeError('config.no_data', { boundary: 'config', retriable: false, message, hint })
