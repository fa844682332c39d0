/** The order in which Jest starts test files. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'

const { longestFirst, longFiles } = require('./sequencer') as {
  longestFirst(
    files: Iterable<string>,
    known: Readonly<Record<string, number>>,
    long?: readonly string[],
  ): readonly string[]
  readonly longFiles: readonly string[]
}
const root = join(__dirname, '../..')

test('a file known to be long starts first, then those of the list, then the others as Jest had them', () => {
  const files = ['large', 'b', 'quick', 'a', 'slow']
  expect(longestFirst(files, {}, ['a', 'b'])).toEqual(['a', 'b', 'large', 'quick', 'slow'])
  expect(longestFirst(files, { slow: 300, a: 1 }, ['a', 'b'])).toEqual(['slow', 'b', 'a', 'large', 'quick'])
})

test('the list names files that are there', () => {
  expect(longFiles.filter(file => !existsSync(join(root, file)))).toEqual([])
})
