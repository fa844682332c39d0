/**
 * Lists the fields of a document that its schema does not know, with the known name that was probably meant.
 *
 * in   a zod schema, the document        out  lines such as `environment.memry_mb (did you mean memory_mb?)`
 */
import type { z } from 'zod'
import { nearestName } from '../../runtime/settings/nearestName'
import { fieldsAt } from '../../runtime/settings/schemaFields'

export function unknownFields(schema: z.core.$ZodType, document: unknown): readonly string[] {
  const found: string[] = []
  const visit = (value: unknown, path: readonly (string | number)[]) => {
    if (Array.isArray(value)) {
      for (const [at, item] of value.entries()) visit(item, [...path, at])
      return
    }
    if (typeof value !== 'object' || value === null) return
    const known = fieldsAt(schema, path)
    if (known.length === 0) return // a record, whose names are the user's
    for (const [name, inner] of Object.entries(value)) {
      if (known.includes(name)) visit(inner, [...path, name])
      else found.push([...path, name].join('.') + meant(name, known))
    }
  }
  visit(document, [])
  return found
}

function meant(name: string, known: readonly string[]): string {
  const nearest = nearestName(name, known)
  return nearest === undefined ? '' : ` (did you mean ${nearest}?)`
}
