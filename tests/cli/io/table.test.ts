/** Tables and lines at 50 and 80 columns: columns go whole, no word is broken, and without a terminal all is there. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tableLines, wrapped } from '../../../cli/io/table'
import { main } from '../../../cli/main'
import { runId } from '../../../messages/ids'
import { quickstartHistory, saveHistory } from '../../support/histories'

const folder = mkdtempSync(join(tmpdir(), 'troupe-table-'))
beforeAll(() => saveHistory(folder, { ...quickstartHistory(), run: runId('history') }))
afterAll(() => rmSync(folder, { recursive: true }))

test('a table keeps its columns in line, colours do not count, and the least important column goes first', () => {
  const columns = [{ title: 'id' }, { title: 'n', atEnd: true, width: 4 }, { title: 'note' }]
  const rows = [
    ['a', '1', '\u001b[31mred\u001b[0m'],
    ['long', '10', 'x'],
  ]
  const whole = ['id       n  note', 'a        1  \u001b[31mred\u001b[0m', 'long    10  x']
  expect(tableLines(columns, [0, 2, 1], rows, undefined)).toEqual(whole)
  expect(tableLines(columns, [0, 2, 1], rows, 12)).toEqual(['id    note', 'a     \u001b[31mred\u001b[0m', 'long  x'])
})

test('a line breaks between words, and a word that is longer than a line stays whole', () => {
  expect(wrapped('ok    disk  much room is left', 18, 6)).toEqual(['ok    disk  much', '      room is left'])
  expect(wrapped('see a/very/long/path/that/fits/nowhere here', 10, 2)).toEqual([
    ...['see', '  a/very/long/path/that/fits/nowhere', '  here'],
  ])
  expect(wrapped('a b', undefined, 2)).toEqual(['a b'])
})

/** What a call prints on a terminal of so many columns; undefined: no terminal. */
async function printed(args: readonly string[], columns: number | undefined): Promise<string> {
  const { stdout } = process
  const before = { isTTY: stdout.isTTY, columns: stdout.columns }
  let text = ''
  const spy = jest.spyOn(stdout, 'write').mockImplementation(chunk => {
    text += chunk.toString()
    return true
  })
  Object.assign(stdout, { isTTY: columns !== undefined, columns })
  process.env.NO_COLOR = '1'
  try {
    await main([...args, '--bus', `lmdb:${folder}`])
  } finally {
    spy.mockRestore()
    Object.assign(stdout, before)
    delete process.env.NO_COLOR
    process.exitCode = 0
  }
  return text
}

test.each([
  [['replay', 'runs'], 'state'],
  [['replay', 'steps', '--run', 'history'], 'pass@1'],
  [['replay', 'roc', 's0001.0000', '--explain', '--run', 'history'], 'reward'],
  [['replay', 'diff', 's0001.0000/3', 's0001.0000/1', '--run', 'history'], 'tokens'],
] as const)('%j fits 50 and 80 columns without a broken word', async (args, kept) => {
  const words = new Set((await printed(args, undefined)).split(/\s+/))
  for (const columns of [50, 80]) {
    const text = await printed(args, columns)
    expect(text).toContain(kept)
    expect(text.split(/\s+/).filter(word => !words.has(word))).toEqual([])
    const long = text.split('\n').filter(line => line.length > columns && line.trim().includes(' '))
    expect(long).toEqual([])
  }
})
