/**
 * Two calls at once try to pass bits by every object that both can reach. None may arrive. That the measure can see a
 * channel shows level `none`, where the two calls have one file system: there the bits of the same programs arrive.
 */
import { openSandbox, type Sandbox } from '../../sandbox'
import { type Channel, channels, PRELUDE } from './covertChannels'

const SLOT_S = 0.015
/** Time in which both calls have begun, and a slot's length, where each call starts an interpreter of its own. */
const FRESH = { beginsMs: 700, slotS: 0.04 }
const BITS = [0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 1, 0]

const indented = (code: string) => code.trim().replaceAll('\n', '\n    ')

/** Two programs that act in the same slots of the machine's monotonic clock. */
function programs(
  { setup = '', send, receive }: Channel,
  startS: number,
  slotS: number,
): { sender: string; receiver: string } {
  const wait = (part: number) => `
    pause = ${startS} + (n + ${part}) * ${slotS} - time.clock_gettime(time.CLOCK_REALTIME)
    if pause > 0: time.sleep(pause)`
  const sender = `${PRELUDE}${setup}
def send(n, bit):
    ${indented(send)}
for n, bit in enumerate(${JSON.stringify(BITS)}):${wait(0)}
    try: send(n, bit)
    except Exception: pass
time.sleep(${slotS})
`
  const receiver = `${PRELUDE}${setup}
def receive(n):
    ${indented(receive)}
got = []
for n in range(${BITS.length}):${wait(0.6)}
    try: got.append(int(receive(n)))
    except Exception as error: got.append(-1)
print(got)
`
  return { sender, receiver }
}

/** Number of bits that the best threshold on the received numbers tells right; a channel makes it all of them. */
function toldRight(got: readonly number[]): number {
  const right = (is: (value: number) => boolean) => BITS.filter((bit, n) => is(got[n]!) === (bit === 1)).length
  return Math.max(...got.flatMap(cut => [right(value => value >= cut), right(value => value < cut)]))
}

async function passed(sandbox: Sandbox, channel: Channel, { beginsMs, slotS } = { beginsMs: 120, slotS: SLOT_S }) {
  const { sender, receiver } = programs(channel, (Date.now() + beginsMs) / 1000, slotS)
  const limits = { timeoutMs: 10_000, memoryMb: 512 }
  const [told, heard] = await Promise.all([
    sandbox.run({ id: 'sender', code: sender, ...limits }),
    sandbox.run({ id: 'receiver', code: receiver, ...limits }),
  ])
  const text = Buffer.from(heard.stdout).toString() || Buffer.from(heard.stderr).toString()
  if (told.status !== 'ok' || heard.status !== 'ok') {
    throw new Error(`${told.status} ${Buffer.from(told.stderr)}\n${heard.status} ${text}`)
  }
  const got = JSON.parse(text) as number[]
  expect(got).toHaveLength(BITS.length)
  return { right: toldRight(got), got }
}

const most = BITS.length - 1

describe('at level full', () => {
  let sandbox: Sandbox
  beforeAll(async () => {
    // One zygote: its calls share a user, a network namespace and a root, so they share more than calls of two would.
    sandbox = await openSandbox({ requireLevel: 'full', zygotes: 1, lanes: 4 })
  })
  afterAll(() => sandbox.close())

  test.each(channels.map(channel => [channel.title, channel] as const))(
    'no bit passes by %s',
    async (_, channel) => {
      const { right, got } = await passed(sandbox, channel)
      if (right >= most) throw new Error(`${right} of ${BITS.length} bits arrived; received: ${got.join(' ')}`)
    },
    20_000,
  )
})

test('where two calls have one file system, at level none, the same programs do pass bits', async () => {
  const sandbox = await openSandbox({ level: 'none', lanes: 4 })
  try {
    const seen = new Set<string>()
    for (let attempt = 0; attempt < 3 && seen.size === 0; attempt++) {
      for (const title of ['flock on a file that both can read', 'a file in /tmp and in /dev/shm']) {
        const channel = channels.find(one => one.title === title)!
        if ((await passed(sandbox, channel, FRESH)).right >= most) seen.add(title)
      }
    }
    expect(seen.size).toBeGreaterThan(0)
  } finally {
    await sandbox.close()
  }
}, 60_000)
