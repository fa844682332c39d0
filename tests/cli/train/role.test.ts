/** `troupe train --role` where it cannot work: what is wrong, and what to do. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { waitForRun, whenBusIsThere } from '../../../cli/train/startedRun'
import { runId } from '../../../messages/ids'
import { openMemoryBus } from '../../../runtime/bus'
import { TroupeError } from '../../../runtime/errors'
import type { RunContext } from '../../../runtime/openRun'
import { endAll, troupe } from '../../support/cli'
import { until } from '../../support/until'

jest.setTimeout(120_000)

test('a role without a bus to share, without a run, or of no such name is refused before anything is opened', async () => {
  const train = ['train', 'quickstart']
  const [alone, unnamed, unknown, none] = await Promise.all([
    troupe([...train, '--role', 'tools', '--run', 'r']).done,
    troupe([...train, '--role', 'tools', '--bus', 'kafka://127.0.0.1:1']).done,
    troupe([...train, '--role', 'worker', '--run', 'r', '--bus', 'kafka://127.0.0.1:1']).done,
    troupe([...train, '--partitions', '0']).done,
  ])
  expect(alone).toMatchObject({ code: 2, stderr: expect.stringMatching(/needs a bus that processes share.*lmdb:/) })
  expect(unnamed).toMatchObject({ code: 2, stderr: expect.stringContaining('--run ID') })
  expect(unknown).toMatchObject({ code: 2, stderr: expect.stringMatching(/Allowed choices are all, coordinator/) })
  expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining('from 1 to 1024') })
})

test('a number, a port or an address that is none is refused before there is anything of a run', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-refused-'))
  const bus = join(directory, 'runs')
  const train = (...args: string[]) => troupe(['train', 'quickstart', '--bus', `lmdb:${bus}`, ...args]).done
  try {
    const [port, steps, served] = await Promise.all([
      train('--metrics', '99999'),
      train('--steps', ''),
      train('--serve-weights', 'nowhere'),
    ])
    expect(port).toMatchObject({ code: 2, stderr: expect.stringContaining('a port from 0 to 65535, or HOST:PORT') })
    expect(steps).toMatchObject({ code: 2, stderr: expect.stringContaining('must be a whole number from 0') })
    expect(served).toMatchObject({ code: 2, stderr: expect.stringContaining("'nowhere' is not HOST:PORT") })
    expect(existsSync(bus)).toBe(false)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})

test('a part of a run waits for a broker that does not answer yet, and for nothing else', async () => {
  const out = new TroupeError('bus.unreachable', { boundary: 'bus', retriable: true, message: 'no broker answers' })
  const said: string[] = []
  let tries = 0
  const open = async () => {
    if (++tries < 3) throw out
    return 'open'
  }
  expect(
    await whenBusIsThere(
      open,
      line => said.push(line),
      () => false,
    ),
  ).toBe('open')
  expect(said).toEqual(['no broker answers; retrying for 30 s'])
  const denied = new TroupeError('bus.denied', { boundary: 'bus', retriable: false, message: 'wrong password' })
  await expect(
    whenBusIsThere(
      () => Promise.reject(denied),
      () => {},
      () => false,
    ),
  ).rejects.toBe(denied)
  const aborted = whenBusIsThere(
    () => Promise.reject(out),
    () => {},
    () => true,
  )
  expect(await aborted).toBeUndefined()
})

test('a role that waits for its learner goes on waiting while the broker is started again', async () => {
  const bus = openMemoryBus()
  const said: string[] = []
  let asked = 0
  const listTopics = async () => {
    if (++asked > 2) stopped = true
    throw new TroupeError('bus.unreachable', { boundary: 'bus', retriable: true, message: 'no broker answers' })
  }
  let stopped = false
  const context = { run: runId('r'), bus: { ...bus, listTopics } } as unknown as RunContext
  expect(
    await waitForRun(
      context,
      line => said.push(line),
      () => stopped,
    ),
  ).toBeUndefined()
  expect(said).toEqual(['no broker answers; retrying for 30 s'])
  await bus.close()
})

test('a role that is stopped while it asks for its broker ends as signals say', async () => {
  const args = ['train', 'quickstart', '--role', 'tools', '--run', 'r', '--bus', 'kafka://127.0.0.1:1']
  const role = troupe(args)
  try {
    await until(() => role.said().includes('retrying for 30 s'), 60_000)
    role.process.kill('SIGINT')
    expect(await role.done).toMatchObject({ code: 130, stdout: '' })
  } finally {
    await endAll([role])
  }
})
