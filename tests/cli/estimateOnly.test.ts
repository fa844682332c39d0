/** The estimate alone: what config print writes of the paper's recipes fits by it, and it loads nothing of a run. */
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

jest.setTimeout(120_000)

const root = join(__dirname, '../..')
const folder = mkdtempSync(join(tmpdir(), 'troupe-estimate-test-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const troupe = (...args: string[]) =>
  execFileSync(process.execPath, [join(root, 'cli/bin.js'), ...args], { encoding: 'utf8', cwd: folder })

test.each(['rstar2', 'rstar2-8gpu'])(
  '%s: config print shows plan, deadlines and retention, and what it prints is a recipe that the dry run accepts',
  name => {
    const printed = troupe('config', 'print', name)
    expect(printed).toMatch(/\n {2}plan:\n {4}kind: colocated # recipe\n/)
    for (const shown of ['deadlineMs', 'turnTimeoutMs', 'keepCheckpoints', 'keepVersions', 'publishedDtype']) {
      expect(printed).toMatch(new RegExp(`\\n  ${shown}: \\S+ # (recipe|default)\\n`))
    }
    expect(printed).toMatch(/\n {2}stepMs: \d+ # .*4 × estimate \(optimizer step: \d+ s\)\n/)
    const file = join(folder, `${name}.yaml`)
    writeFileSync(file, printed)
    // Exit code 0: no deadline is shorter than its estimate, and the plan fits the GPUs.
    const { estimate } = JSON.parse(troupe('train', file, '--dry-run', '--estimate-only', '--json'))
    expect(estimate.faults).toEqual([])
  },
)

test('an estimate loads no actors, engines, bus, gRPC, worker pool or language detector', () => {
  const script = `
    require('./cli/register.js')
    require('./cli/main').main(['train', 'rstar2', '--dry-run', '--estimate-only', '--json']).then(() => {
      const heavy = /(actors.(?!run.run)|backends.engines|runtime.bus|node_modules.(@grpc|piscina|lmdb|nact|tinyld|franc|kafkajs))./
      console.error(JSON.stringify(Object.keys(require.cache).filter(file => heavy.test(file))))
    })`
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', script], { cwd: root, encoding: 'utf8' })
  expect(JSON.parse(stdout).type).toBe('estimate')
  expect(JSON.parse(stderr)).toEqual([])
})
