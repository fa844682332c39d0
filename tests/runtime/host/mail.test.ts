/** Mail of a host waits for its actor by the run's clock, which stands still while the log cannot be written. */

import type { ActorRef } from '../../../runtime/actor/system'
import { TroupeError } from '../../../runtime/errors'
import { hostMail } from '../../../runtime/host/mail'

const late = () => new TroupeError('actor.tell_timeout', { boundary: 'actor', retriable: true, message: 'no room' })

/** A mailbox without room: each `tell` moves the run's clock by the next of `passed`, then is late; after them it is accepted. */
function rig(passed: number[]) {
  let now = 5
  const deadlines: number[] = []
  const ref = {
    async tell(_: string, { deadlineMs }: { deadlineMs: number }) {
      deadlines.push(deadlineMs)
      const ms = passed.shift()
      if (ms === undefined) return
      now += ms
      throw late()
    },
    tryTell: () => true,
  } as unknown as ActorRef<string>
  return {
    deadlines,
    mail: hostMail(() => ref, 'tick', { elapsed: () => now }),
  }
}

test('mail whose deadline passed in a pause that is over has the rest of its time left', async () => {
  const { deadlines, mail } = rig([10_000, 20_000])
  await mail.post('m')
  expect(deadlines).toEqual([60_000, 50_000, 30_000])
})

test('mail that waited its whole time without a pause is refused', async () => {
  const { deadlines, mail } = rig([59_999])
  await expect(mail.post('m')).rejects.toMatchObject({ code: 'actor.tell_timeout' })
  expect(deadlines).toEqual([60_000])
})
