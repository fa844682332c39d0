/** The recorded run that ships with Troupe, and `troupe demo` over it. */
import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Overview } from '../../dashboard/api'
import { unpackRecording } from '../../dashboard/demo/recording'
import { openLog } from '../../replay/log/recordedRun'
import { verifyRun } from '../../replay/verify/verifyRun'

jest.setTimeout(60_000)

const root = join(__dirname, '../..')
const file = join(root, 'dashboard/demo/quickstart.recording')

test('the recorded run is below 2 MB, and its log is sound', async () => {
  expect(statSync(file).size).toBeLessThan(2_000_000)
  const directory = mkdtempSync(join(tmpdir(), 'troupe-demo-test-'))
  try {
    const run = await unpackRecording(readFileSync(file), directory)
    const recorded = await openLog({ bus: `lmdb:${directory}`, run })
    const { facts } = await verifyRun(recorded)
    expect(facts).toBeGreaterThan(10_000)
    expect(recorded.faults).toEqual([])
    await recorded.close()
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})

test('`troupe demo` serves the run with Node alone, and leaves nothing behind', async () => {
  const temporary = mkdtempSync(join(tmpdir(), 'troupe-demo-test-'))
  const env = { ...process.env, TMPDIR: temporary, TROUPE_VENV: join(temporary, 'none'), PATH: '' }
  const child = spawn(process.execPath, [join(root, 'cli/bin.js'), 'demo', '--no-open', '--port', '0'], { env })
  try {
    let printed = ''
    const address = await new Promise<string>((resolve, reject) => {
      child.once('exit', () => reject(new Error(printed)))
      child.stderr.on('data', chunk => {
        printed += chunk
        const found = /dashboard: (http:\/\/127\.0\.0\.1:\d+\/)#\/r\/(\S+)/.exec(printed)
        if (found !== null) resolve(`${found[1]}api/runs/${found[2]}`)
      })
    })
    const overview = (await (await fetch(address)).json()) as Overview
    expect(overview).toMatchObject({ state: 'done', recipe: 'quickstart', step: 12 })
    expect(overview.marks.some(mark => mark.kind === 'resumed')).toBe(true)
    const ended = new Promise(resolve => child.once('exit', resolve))
    child.kill('SIGTERM')
    expect(await ended).toBe(143)
    expect(readdirSync(temporary).filter(name => name.startsWith('troupe-demo'))).toEqual([])
  } finally {
    child.kill('SIGKILL')
    rmSync(temporary, { recursive: true, force: true })
  }
})
