/**
 * The recipe's trackers of experiments: addresses that a run's figures go to, as `track --to` takes them. `train` starts each in a
 * process of its own; the run waits for none.
 */
import { z } from 'zod'
import { trackerAddress } from '../trackerAddress'

const address = z.string().superRefine((text, ctx) => {
  const read = trackerAddress(text)
  if (typeof read === 'string') ctx.addIssue({ code: 'custom', message: read })
})

/** It has no default, so that the digests of recipes without trackers stay the same. */
export const trackersSection = z.array(address).optional()
