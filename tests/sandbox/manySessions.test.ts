/**
 * Many sessions at once: each keeps the process of its last cell, so that no cell is run again for another session.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSandbox } from '../../sandbox'
import { stateBound } from '../../sandbox/sessions/stateBound'

test('210 sessions of three cells stay live, and the first one still has what its first cell left', async () => {
  const sandbox = await openSandbox({ requireLevel: 'full', zygotes: 1 })
  try {
    const run = async (n: number, cell: number, code: string) => {
      const result = await sandbox.run({ id: 'c', mode: 'cell', code, session: { id: `s${n}`, cell } })
      return Buffer.from(result.stdout).toString()
    }
    const all = Array.from({ length: 210 }, (_, n) => n)
    const began = await Promise.all(all.map(n => run(n, 0, 'import time\nt = time.time_ns()\nprint(t)')))
    await Promise.all(all.map(n => run(n, 1, 'x = 1')))
    // A session whose states were evicted would run its first cell again, at another time.
    expect(await Promise.all(all.map(n => run(n, 2, 'print(t)')))).toEqual(began)
  } finally {
    await sandbox.close()
  }
}, 60_000)

describe('the bound on paused cells', () => {
  let roots: { proc: string; cgroup: string }
  beforeEach(() => {
    const at = mkdtempSync(join(tmpdir(), 'troupe-bound-'))
    roots = { proc: join(at, 'proc'), cgroup: join(at, 'cgroup') }
    mkdirSync(join(roots.proc, 'self'), { recursive: true })
    mkdirSync(roots.cgroup)
  })
  afterEach(() => rmSync(join(roots.proc, '..'), { recursive: true }))
  const limits = (files: number, processes: string) => {
    writeFileSync(
      join(roots.proc, 'self/limits'),
      `Max open files            1024                 ${files}               files\n`,
    )
    writeFileSync(join(roots.cgroup, 'pids.max'), `${processes}\n`)
  }

  test('fits the descriptors of the zygotes, and half of the processes of the cgroup', () => {
    limits(1_048_576, 'max')
    expect(stateBound(2, roots)).toBe(4352)
    limits(4096, 'max')
    expect(stateBound(1, roots)).toBe(1478)
    limits(1_048_576, '4096')
    expect(stateBound(2, roots)).toBe(1365)
  })

  test('is never under 400, also where no limit can be read', () => {
    limits(1024, '256')
    expect(stateBound(1, roots)).toBe(400)
    expect(stateBound(1, { proc: '/nowhere', cgroup: '/nowhere' })).toBe(4352)
  })
})
