/** Two snapshots with the same changed files have no difference, whichever driver wrote them and whatever their shells hold. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { changesBetween, type Manifest, readManifest } from '../../../environments/snapshots/manifest'
import { diffSnapshots } from '../../../replay/files/trajectoryFiles'

const root = mkdtempSync(join(tmpdir(), 'troupe-diff-'))
afterAll(() => rmSync(root, { recursive: true }))

function snapshot(digest: string, greeting: string, entries: readonly object[]): string {
  mkdirSync(join(root, 'layers', digest, 'app'), { recursive: true })
  writeFileSync(join(root, 'layers', digest, 'app/hello'), greeting)
  writeFileSync(join(root, 'layers', `${digest}.manifest`), entries.map(entry => JSON.stringify(entry)).join('\n'))
  return digest
}
const shell = (sha256: string) => ({ path: '/tmp/.troupe-shell-0', kind: 'file', sha256 })
const oci = snapshot('a'.repeat(64), 'one\n', [
  { gid: 0, kind: 'directory', mode: 493, path: '/app', uid: 0 },
  { bytes: 4, gid: 0, kind: 'file', mode: 420, path: '/app/hello', sha256: '1', uid: 0 },
  shell('x'),
])
const docker = snapshot('b'.repeat(64), 'one\n', [
  { path: '/app', mode: 493, uid: 0, gid: 0, kind: 'directory' },
  { path: '/app/hello', mode: 420, uid: 0, gid: 0, kind: 'file', bytes: 4, sha256: '1' },
  shell('y'),
])
const other = snapshot('c'.repeat(64), 'two\n', [
  { path: '/app/hello', mode: 420, uid: 0, gid: 0, kind: 'file', bytes: 4, sha256: '2' },
])

test('the order of fields and the state of the shell are no difference', () => {
  expect(diffSnapshots({ root }, oci, docker)).toEqual([])
  expect(changesBetween(readManifest({ root }, oci)!, readManifest({ root }, docker)!, () => false)).toEqual([])
})

test('other contents are', () => {
  expect(diffSnapshots({ root }, docker, other)).toMatchObject([
    { path: '/app', a: 'present', b: 'absent' },
    { path: '/app/hello', a: 'present', b: 'present', lines: ['@@ -1 +1 @@', '-one', '+two'] },
  ])
})

test('a file in whose place there is a directory of the same mode has changed', () => {
  const [was, is] = ['file', 'directory'].map(kind => new Map([['/app/x', { path: '/app/x', kind, mode: 493 }]]))
  const changed = changesBetween(was as unknown as Manifest, is as unknown as Manifest, () => false)
  expect(changed).toMatchObject([{ path: '/app/x', change: 'changed' }])
})
