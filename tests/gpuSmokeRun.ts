/**
 * What only a GPU can show: `npm run smoke:gpu -- [--device cuda] [--shape 0.5b] [--part torch|vllm] [--out docs/gpu.md]`.
 * Part torch: parity of bfloat16, head, attention and engine, and rates with the share of the peak that they are. Part
 * vllm: a real server that sleeps, wakes and takes new weights. Prints a line of JSON for each figure and writes the page
 * `--out`, by default docs/gpu.md for a GPU and none for a CPU.
 * Exit 1 when a figure is out of its bound or a check failed; a part that is not installed is not a failure.
 */
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import { pythonEnvironment, pythonPath } from '../runtime/python'
import { exitWith } from './support/exitWith'
import { type DeviceLine, type FigureLine, gpuPage } from './support/gpuReport'
import { vllmFigures } from './support/vllmSmoke'

const deadlineMs = 20 * 60_000
const root = join(__dirname, '..')

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      device: { type: 'string' },
      shape: { type: 'string' },
      part: { type: 'string' },
      out: { type: 'string' },
    },
  })
  const { part } = values
  if (part !== undefined && part !== 'torch' && part !== 'vllm') throw new Error(`--part ${part}: torch or vllm`)
  const device = values.device ?? 'cuda'
  const out = values.out ?? (device === 'cpu' ? undefined : join(root, 'docs/gpu.md'))
  const args = ['--device', device, ...(values.shape === undefined ? [] : ['--shape', values.shape])]
  const { code, lines } = await python([...args, ...(part === 'vllm' ? ['--only'] : [])])
  const [first, ...figures] = lines as [DeviceLine | undefined, ...FigureLine[]]
  if (first === undefined) return code === 0 ? 1 : code
  if (part !== 'torch') {
    for await (const figure of vllmFigures(device === 'cpu' ? 'cpu' : 'cuda')) {
      console.log(JSON.stringify(figure))
      figures.push(figure)
    }
  }
  if (out !== undefined) {
    writeFileSync(out, gpuPage(first, figures, new Date().toISOString().slice(0, 10)))
    console.error(`written: ${out}`)
  }
  const missed = figures.filter(figure => figure.ok === false)
  console.error(`${figures.length} figures, ${missed.length} out of bounds`)
  return missed.length === 0 && code === 0 ? 0 : 1
}

/** Runs policy/smoke; its lines appear on stdout as they come. Killed at the deadline, with an exit code of 1. */
function python(args: readonly string[]): Promise<{ code: number; lines: unknown[] }> {
  const child = spawn(pythonPath(), [join(root, 'policy/smoke'), ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: pythonEnvironment({ HF_HUB_OFFLINE: '1', TOKENIZERS_PARALLELISM: 'false' }),
  })
  const timer = setTimeout(() => child.kill('SIGKILL'), deadlineMs)
  const lines: unknown[] = []
  createInterface({ input: child.stdout }).on('line', line => {
    console.log(line)
    lines.push(JSON.parse(line))
  })
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', code => {
      clearTimeout(timer)
      resolve({ code: code ?? 1, lines })
    })
  })
}

exitWith(main)
