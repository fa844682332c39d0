/** The blob store returns what was put, under its digest, or says why not. */
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { type BlobStore, memoryBlobs, openFileBlobs } from '../../../runtime/bus'
import { codeOf } from './contract'

const directories: string[] = []
const temporary = (): string => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-blobs-'))
  directories.push(directory)
  return directory
}
afterAll(() => {
  for (const directory of directories) rmSync(directory, { recursive: true })
})

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

const stores: readonly [string, () => Promise<BlobStore>][] = [
  ['memory', async () => memoryBlobs()],
  ['file', () => openFileBlobs(temporary())],
]

describe.each(stores)('the %s blob store', (_, open) => {
  test('any bytes come back under their digest, as a copy', async () => {
    const blobs = await open()
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 5000 }), async bytes => {
        const reference = await blobs.put(bytes)
        expect(reference).toEqual({ sha256: sha256(bytes), bytes: bytes.length })
        expect(await blobs.has(reference.sha256)).toBe(true)
        const got = await blobs.get(reference.sha256)
        expect(Buffer.compare(got, bytes)).toBe(0)
        got.fill(255)
        expect(Buffer.compare(await blobs.get(reference.sha256), bytes)).toBe(0)
      }),
      { numRuns: 30 },
    )
  })

  test('the same bytes may be put many times at once', async () => {
    const blobs = await open()
    const bytes = Buffer.alloc(2_000_000, 'abc')
    const references = await Promise.all(Array.from({ length: 8 }, () => blobs.put(bytes)))
    expect(new Set(references.map(reference => reference.sha256)).size).toBe(1)
    expect(bytes.equals(await blobs.get(sha256(bytes)))).toBe(true)
  })

  test('what was never put is missing, and what is no digest is refused before it becomes a path', async () => {
    const blobs = await open()
    const never = sha256(Buffer.from('never'))
    expect(await blobs.has(never)).toBe(false)
    expect(await codeOf(blobs.get(never))).toBe('blob.missing')
    for (const name of ['../../etc/passwd', '', never.toUpperCase(), `${never}/x`]) {
      expect(await codeOf(blobs.get(name))).toBe('blob.digest_invalid')
      expect(await codeOf(blobs.has(name))).toBe('blob.digest_invalid')
    }
  })
})

test('a file whose bytes changed or were cut off is reported as corrupt', async () => {
  const directory = temporary()
  const blobs = await openFileBlobs(directory)
  const { sha256 } = await blobs.put(Buffer.from('the tool printed this'))
  const path = join(directory, sha256.slice(0, 2), sha256.slice(2))
  writeFileSync(path, 'the tool printed that')
  expect(await codeOf(blobs.get(sha256))).toBe('blob.corrupt')
  truncateSync(path, 3)
  expect(await codeOf(blobs.get(sha256))).toBe('blob.corrupt')
})

test('nothing half written stays behind, and another store over the same directory finds what is there', async () => {
  const directory = temporary()
  const blobs = await openFileBlobs(directory)
  const bytes = Buffer.from('kept')
  await blobs.put(bytes)
  expect(readdirSync(directory)).toEqual([sha256(bytes).slice(0, 2)])
  const other = await openFileBlobs(directory)
  expect(bytes.equals(await other.get(sha256(bytes)))).toBe(true)
})

test('a directory that cannot be is a coded error', async () => {
  const file = join(temporary(), 'file')
  writeFileSync(file, '')
  expect(await codeOf(openFileBlobs(join(file, 'below')))).toBe('blob.write_failed')
})
