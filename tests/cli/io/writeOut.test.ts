/** A file that the user named is whole, or as it was; that it cannot be written is known before what takes long. */
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeOut } from '../../../cli/io/writeOut'
import { troupe } from '../../support/cli'

jest.setTimeout(60_000)

let directory: string
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'troupe-out-'))
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

test('a file whose pieces end in an error is as it was, and nothing lies beside it', () => {
  const file = join(directory, 'kept')
  writeFileSync(file, 'before')
  chmodSync(file, 0o600)
  function* broken() {
    yield 'half of '
    throw new Error('no more')
  }
  expect(() => writeOut(file, broken())).toThrow('no more')
  expect([readFileSync(file, 'utf8'), readdirSync(directory)]).toEqual(['before', ['kept']])
  writeOut(file, ['whole', Buffer.from('!')])
  expect([readFileSync(file, 'utf8'), readdirSync(directory)]).toEqual(['whole!', ['kept']])
  expect(statSync(file).mode & 0o777).toBe(0o600)
})

test('directories that are not there are made; a pipe and a link are written to where they stand', () => {
  const file = join(directory, 'new/er/file')
  writeOut(file, ['a'])
  expect(readFileSync(file, 'utf8')).toBe('a')
  const link = join(directory, 'link')
  symlinkSync(file, link)
  writeOut(link, ['b'])
  expect([readFileSync(file, 'utf8'), lstatSync(link).isSymbolicLink()]).toEqual(['b', true])
  const fifo = join(directory, 'fifo')
  spawnSync('mkfifo', [fifo])
  const read = spawnSync(
    'sh',
    [
      '-c',
      `cat ${fifo} & "$0" -r ./cli/register.js -e 'require("./cli/io/writeOut").writeOut("${fifo}", ["piped"])'; wait`,
      process.execPath,
    ],
    { encoding: 'utf8', cwd: join(__dirname, '../../..'), timeout: 30_000 },
  )
  expect([read.stdout, lstatSync(fifo).isFIFO()]).toEqual(['piped', true])
})

test('an evaluation whose report cannot be written is refused before it begins', async () => {
  const data = join(directory, 'aime.jsonl')
  writeFileSync(data, '{"problem":"1+1","answer":"2"}\n')
  const bus = join(directory, 'runs')
  const given = ['--data', data, '--model', directory, '--bus', `lmdb:${bus}`, '--report', join(data, 'F.md')]
  const { code, stderr } = await troupe(['eval', 'aime24', ...given]).done
  expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining('cli.cannot_write') })
  expect(existsSync(bus)).toBe(false)
})
