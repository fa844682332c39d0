/**
 * The recipe's experiment trackers: addresses that a run's metrics are sent to, as `track --to` takes them. `train`
 * starts a process for each; the run waits for them only at its end, for at most 10 s.
 */
import { z } from 'zod'
import { trackerAddress } from '../trackerAddress'

const address = z.string().superRefine((text, ctx) => {
  const read = trackerAddress(text)
  if (typeof read === 'string') ctx.addIssue({ code: 'custom', message: read })
})

/** Addresses of trackers. The section has no default, so that the digests of recipes without trackers stay the same. */
export const trackersSection = z.array(address).optional()
