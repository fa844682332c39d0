/** `troupe train --role` where it cannot work: what is wrong, and what to do. */
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
