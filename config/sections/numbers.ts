/** Zod schemas of numbers that several sections use. */
import { z } from 'zod'

export const positive = z.number().int().positive()
export const count = z.number().int().nonnegative()
