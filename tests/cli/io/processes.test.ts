/** Processes of this machine: which of them a process has started, and which part of a run they serve. */
import { type ChildProcess, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { family, servedPart } from '../../../cli/io/processes'
import { until } from '../../support/until'

const started: ChildProcess[] = []
afterAll(() => {
  for (const child of started) child.kill('SIGKILL')
})

/** Starts a process that has these arguments and does nothing; `code` runs in it first. */
function idle(args: readonly string[], code = ''): ChildProcess {
  const child = spawn(process.execPath, ['-e', `${code}; setInterval(() => {}, 1000)`, '--', ...args])
  started.push(child)
  return child
}

const partOf = (child: ChildProcess) => servedPart(readFileSync(`/proc/${child.pid}/cmdline`, 'utf8'))

test.each([
  ['a server', ['-m', 'troupe_policy.server', '--serve', 'engine', '--model', 'm'], 'engine'],
  ['a trainer', ['--serve', 'trainer', '--socket', 'x'], 'trainer'],
  ['a renderer', ['--serve', 'render', '--socket', 'x'], 'renderer'],
  ['a fork of the trainer', ['-m', 'troupe_policy.trainer.parallel_gradients', 'fork', '1'], 'trainer'],
  ['a server of weights', ['--serve', 'weights', '--model', 'm'], undefined],
  ['a program whose text names a part', ['--text', '--serve engine '], undefined],
])('%s serves what its command line says', async (_, args, expected) => {
  const child = idle(args)
  // Between fork and exec a child has its parent's command line.
  await until(() => readFileSync(`/proc/${child.pid}/cmdline`, 'utf8').includes('setInterval'), 10_000)
  expect(partOf(child)).toBe(expected)
})

test('a family is this process, its children and theirs, and nobody else', async () => {
  const child = idle([], "console.log(require('child_process').spawn('sleep', ['60']).pid)")
  const grandchild = Number(await new Promise(resolve => child.stdout!.once('data', resolve)))
  try {
    const pids = family().map(one => one.pid)
    expect(pids).toEqual(expect.arrayContaining([process.pid, child.pid!, grandchild]))
    expect(pids).not.toContain(process.ppid)
    expect(family().find(one => one.pid === process.pid)!.cpuSeconds).toBeGreaterThan(0)
  } finally {
    process.kill(grandchild, 'SIGKILL')
  }
})
