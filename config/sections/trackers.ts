/**
 * The recipe's experiment trackers: addresses that a run's metrics are sent to, as `track --to` takes them. `train`
 * starts a process for each; the run does not wait for them.
 */
import { z } from 'zod'
import { trackerAddress } from '../trackerAddress'

const address = z.string().superRefine((text, ctx) => {
  const read = trackerAddress(text)
  if (typeof read === 'string') ctx.addIssue({ code: 'custom', message: read })
})

/** Addresses of trackers. The section has no default, so that the digests of recipes without trackers stay the same. */
export const trackersSection = z.array(address).optional()
