/** `troupe train --role` where it cannot work: what is wrong, and what to do. */
import { whenBusIsThere } from '../cli/startedRun'
import { TroupeError } from '../runtime/errors'
import { troupe } from './support/cli'

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
  expect(said).toEqual(['no broker answers; asking for 30 s'])
  const denied = new TroupeError('bus.denied', { boundary: 'bus', retriable: false, message: 'wrong password' })
  await expect(
    whenBusIsThere(
      () => Promise.reject(denied),
      () => {},
      () => false,
    ),
  ).rejects.toBe(denied)
  await expect(
    whenBusIsThere(
      () => Promise.reject(out),
      () => {},
      () => true,
    ),
  ).rejects.toBe(out)
})
