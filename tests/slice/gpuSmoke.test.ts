/** `npm run smoke:gpu` runs to its end on a CPU, keeps every bound there, and writes its page. Part vllm: tests/vllm/smoke.test.ts. */
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { gpuPage } from '../support/gpuReport'

const root = join(__dirname, '../..')
const folder = mkdtempSync(join(tmpdir(), 'troupe-gpu-smoke-test-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

test('on a CPU every check runs on a small model, and the page has a row for each figure', async () => {
  const out = join(folder, 'gpu.md')
  const args = ['-r', './cli/register.js', 'tests/gpuSmokeRun.ts', '--device', 'cpu', '--part', 'torch', '--out', out]
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root, timeout: 280_000 })
  const [device, ...figures] = stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line))
  expect(device).toMatchObject({ device: 'cpu', shape: 'tiny' })
  const checks = [
    'head',
    'bfloat16',
    'attention',
    'attention kernels',
    'compile',
    'engine',
    'head time',
    'generation',
    'training',
  ]
  expect([...new Set(figures.map(figure => figure.check))]).toEqual(checks)
  expect(figures.filter(figure => !figure.ok)).toEqual([])
  const page = readFileSync(out, 'utf8')
  expect(page).toContain('no GPU: cpu')
  expect(page.split('\n').filter(line => line.startsWith('| '))).toHaveLength(figures.length + 2)
}, 300_000)

test('a figure out of its bound, and a check that could not run, are seen on the page', () => {
  const device = { shape: '0.5b', device: 'cuda', name: 'A GPU', memoryGib: 80, torch: '2', cuda: '13', threads: 8 }
  const page = gpuPage(
    device,
    [
      { check: 'head', figure: 'difference', value: 0.51234, unit: 'nats', bound: '≤ 0.25', ok: false },
      { check: 'engine', figure: 'ran to its end', ok: false, why: 'ValueError: a | b' },
      { check: 'vllm', figure: 'ran to its end', ok: null, why: 'vLLM is not installed' },
    ],
    '2026-01-01',
  )
  expect(page).toContain('A GPU, 80 GiB; torch 2, CUDA 13')
  expect(page).toContain('| head | difference | 0.512 nats | ≤ 0.25 | **no** |  |')
  expect(page).toContain('| engine | ran to its end | – |  | **no** | ValueError: a   b |')
  expect(page).toContain('| vllm | ran to its end | – |  | not run | vLLM is not installed |')
})
