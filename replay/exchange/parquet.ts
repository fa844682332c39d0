/**
 * Writes a table as Apache Parquet, which pandas, Arrow, DuckDB and `datasets` load.
 *
 * in   columns with their types, rows        out  the file's bytes
 * Invariant: the schema depends only on the columns, so a reader can load the files of several runs as one table, also
 * files without rows.
 */
import type { Columns, ColumnType, Row } from './tables'

/** Parquet type of a column's values; for `ints` and `floats`, whose values are lists, that of the elements. */
const elements: Readonly<Record<ColumnType, { readonly type: string; readonly converted_type?: string }>> = {
  string: { type: 'BYTE_ARRAY', converted_type: 'UTF8' },
  int: { type: 'INT32' },
  double: { type: 'DOUBLE' },
  time: { type: 'INT64', converted_type: 'TIMESTAMP_MILLIS' },
  ints: { type: 'INT32' },
  floats: { type: 'FLOAT' },
}
const isList = (type: ColumnType) => type === 'ints' || type === 'floats'

export async function parquetOf(columns: Columns, rows: readonly Row[]): Promise<Buffer> {
  const { parquetWriteBuffer } = await import('hyparquet-writer')
  const names = Object.entries(columns)
  const schema = [
    { name: 'root', num_children: names.length },
    ...names.flatMap(([name, type]) =>
      isList(type)
        ? [
            { name, repetition_type: 'OPTIONAL', num_children: 1, converted_type: 'LIST' },
            { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
            { name: 'element', repetition_type: 'OPTIONAL', ...elements[type] },
          ]
        : [{ name, repetition_type: 'OPTIONAL', ...elements[type] }],
    ),
  ]
  const columnData = names.map(([name, type]) => ({
    name,
    data: rows.map(row => (type === 'time' && row[name] != null ? new Date(row[name] as number) : row[name])),
  }))
  // The writer's types expect literal types such as 'OPTIONAL'; here they are inferred as plain strings.
  const asked = { columnData, schema } as unknown as Parameters<typeof parquetWriteBuffer>[0]
  return Buffer.from(parquetWriteBuffer(asked))
}
