/**
 * Tools of OpenAI's responses: functions, and functions in namespaces, as the agent Codex offers them.
 *
 * in   the field `tools`; names of called functions        out  schemas; a name and its namespace
 * Invariant: a model sees a function of a namespace as `NAMESPACE::NAME`; the client sees both parts apart. A tool that
 * runs at its vendor is refused, since the gateway cannot run it.
 */
import { z } from 'zod'
import type { ToolSchema } from '../../config/toolSchema'
import { hostedTool, schemaOf, unnamedFunction } from './dialect'

const separator = '::'
const tool = z.looseObject({ type: z.string(), name: z.string().optional() })

export const responseTools = z.array(tool.extend({ tools: z.array(tool).optional() }))

type Tool = z.infer<typeof responseTools>[number]

export function schemasOf(tools: readonly Tool[], where = 'tools', namespace?: string): readonly ToolSchema[] {
  return tools.flatMap((one, i) => {
    const place = `${where}.${i}`
    if (one.type === 'namespace' && namespace === undefined) {
      if (one.name === undefined) throw unnamedFunction(`${place}.name`)
      return schemasOf(one.tools ?? [], `${place}.tools`, one.name)
    }
    if (one.type !== 'function') throw hostedTool(one.type, place)
    if (one.name === undefined) throw unnamedFunction(`${place}.name`)
    return [schemaOf(nameIn(namespace, one.name), one.description, one.parameters)]
  })
}

/** Returns the name by which a model calls a function: `NAMESPACE::NAME`, or the plain name without a namespace. */
export const nameIn = (namespace: unknown, name: string): string =>
  typeof namespace === 'string' && namespace !== '' ? `${namespace}${separator}${name}` : name

/** Splits the name that a model called into the fields of the client's function call: name and, if any, namespace. */
export function partsOf(called: string): { readonly name: string; readonly namespace?: string } {
  const at = called.indexOf(separator)
  return at <= 0 ? { name: called } : { name: called.slice(at + separator.length), namespace: called.slice(0, at) }
}
