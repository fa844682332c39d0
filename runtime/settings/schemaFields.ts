/**
 * Inspects zod schemas: the fields of an object at a path, and the paths at which a field of some name exists.
 * It sees through optional, default, readonly, lazy, pipes, unions, intersections, lists and records.
 */
import type { z } from 'zod'

type Schema = z.core.$ZodType
const deepest = 8 // bounds recursion, since lazy schemas may contain themselves

/** Returns the fields known at `path`; for a union, those of every branch. */
export function fieldsAt(schema: Schema, path: readonly PropertyKey[]): readonly string[] {
  let at = peel(schema)
  for (const key of path) at = at.flatMap(inner => peelAll(step(inner, key)))
  return [...new Set(at.flatMap(inner => Object.keys(shapeOf(inner))))]
}

/**
 * Returns the paths (outside lists and records, at most 8 fields long) that end in a field of this name, shortest
 * first.
 */
export function pathsNamed(schema: Schema, name: string): readonly string[] {
  const found: string[] = []
  const visit = (inner: Schema, path: readonly string[]) => {
    if (path.length >= deepest) return
    for (const [key, field] of Object.entries(shapeOf(inner))) {
      if (key === name) found.push([...path, key].join('.'))
      for (const below of peel(field)) visit(below, [...path, key])
    }
  }
  for (const inner of peel(schema)) visit(inner, [])
  return [...new Set(found)].sort((a, b) => a.split('.').length - b.split('.').length)
}

function shapeOf(schema: Schema): Readonly<Record<string, Schema>> {
  const { def } = (schema as z.core.$ZodTypes)._zod
  return def.type === 'object' ? def.shape : {}
}

const peelAll = (schemas: readonly Schema[]) => schemas.flatMap(schema => peel(schema))

/** Returns the schemas inside wrappers such as `optional`, for a union or an intersection those of every branch. */
function peel(schema: Schema, depth = 0): readonly Schema[] {
  const { def } = (schema as z.core.$ZodTypes)._zod
  if (depth > deepest) return []
  switch (def.type) {
    case 'optional':
    case 'nullable':
    case 'default':
    case 'prefault':
    case 'nonoptional':
    case 'catch':
    case 'readonly':
      return peel(def.innerType, depth + 1)
    case 'pipe':
      // `z.preprocess` is a pipe from a transform, which has no fields, to the schema.
      return peel((def.in as z.core.$ZodTypes)._zod.def.type === 'transform' ? def.out : def.in, depth + 1)
    case 'lazy':
      return peel(def.getter(), depth + 1)
    case 'union':
      return def.options.flatMap(option => peel(option, depth + 1))
    case 'intersection':
      return [...peel(def.left, depth + 1), ...peel(def.right, depth + 1)]
    default:
      return [schema]
  }
}

function step(schema: Schema, key: PropertyKey): readonly Schema[] {
  const { def } = (schema as z.core.$ZodTypes)._zod
  switch (def.type) {
    case 'object': {
      const field = def.shape[String(key)]
      return field ? [field] : []
    }
    case 'array':
      return [def.element]
    case 'record':
      return [def.valueType]
    case 'tuple': {
      const item = def.items[Number(key)]
      return item ? [item] : []
    }
    default:
      return []
  }
}
