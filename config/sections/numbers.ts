/** Number schemas that the sections share. */
import { z } from 'zod'

export const positive = z.number().int().positive()
export const count = z.number().int().nonnegative()
