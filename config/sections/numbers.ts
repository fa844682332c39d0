/** Numbers that sections of a recipe are made of. */
import { z } from 'zod'

export const positive = z.number().int().positive()
export const count = z.number().int().nonnegative()
