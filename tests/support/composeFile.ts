/**
 * Reads the compose files as Compose does: substitutes variables, merges files, leaves out services of inactive
 * profiles.
 *
 * in   the text of an .env file: variables, COMPOSE_FILE, COMPOSE_PROFILES; default: empty, and then all profiles are
 * active
 * out  services, volumes, the variables that the files use
 * Invariant: every variable in the files has a default (`:-`) or is required (`:?`); anything else throws, as does a
 * required variable without a value.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'

export interface ComposeBind {
  readonly type: 'bind'
  readonly source: string
  readonly target: string
  readonly read_only?: boolean
  readonly bind?: { readonly create_host_path?: boolean }
}

interface ComposeDevice {
  readonly driver: string
  readonly count: string | number
  readonly capabilities: readonly string[]
}

export interface ComposeService {
  readonly image: string
  readonly build?: {
    readonly context: string
    readonly target: string
    readonly args: Readonly<Record<string, string>>
  }
  readonly command?: readonly (string | number)[]
  readonly ports?: readonly string[]
  readonly security_opt?: readonly string[]
  readonly profiles?: readonly string[]
  readonly volumes?: readonly (string | ComposeBind)[]
  readonly network_mode?: string
  readonly pull_policy?: string
  readonly healthcheck?: { readonly test: readonly string[] }
  readonly environment?: Readonly<Record<string, string | number>>
  readonly deploy?: {
    readonly replicas?: number
    readonly resources?: { readonly reservations: { readonly devices: readonly ComposeDevice[] } }
  }
  readonly depends_on?: Readonly<Record<string, { readonly condition: string; readonly required?: boolean }>>
}

export interface ComposeFile {
  readonly services: Readonly<Record<string, ComposeService>>
  readonly volumes: Readonly<Record<string, unknown>>
  /** Defaults of the variables that have one, by name. */
  readonly variables: ReadonlyMap<string, string>
  /** Names of the variables that must be set. */
  readonly required: ReadonlySet<string>
}

export const composeRoot = join(__dirname, '../..')

/** Names of the variables that Compose itself reads. */
export const composeOwn = ['COMPOSE_FILE', 'COMPOSE_PROFILES'] as const

export function variablesIn(text: string): Readonly<Record<string, string>> {
  const lines = text.split('\n').filter(line => /^[A-Z_]+=/.test(line))
  return Object.fromEntries(lines.map(line => line.split(/=(.*)/).slice(0, 2)))
}

export function composeFile(env = ''): ComposeFile {
  const values = variablesIn(env)
  const variables = new Map<string, string>()
  const required = new Set<string>()
  const read = (file: string) =>
    readFileSync(join(composeRoot, file), 'utf8').replaceAll(
      /\$\{([A-Z_]+)(?::([-?])([^}]*))?\}/g,
      (_, name: string, sign: '-' | '?' | undefined, text: string) => {
        if (sign === undefined) throw new Error(`${name} has no default: compose would put nothing in its place`)
        if (sign === '-') variables.set(name, text)
        else required.add(name)
        const value = values[name] ?? (sign === '-' ? text : undefined)
        if (value === undefined) throw new Error(`${name} is not set: ${text}`)
        return value
      },
    )
  const files = (values.COMPOSE_FILE ?? 'docker-compose.yml').split(':')
  const whole = files.map(file => parse(read(file), { merge: true })).reduce((a, b) => merged(a, b)) as ComposeFile
  const active = values.COMPOSE_PROFILES?.split(',')
  // Without COMPOSE_PROFILES the services of all profiles are returned.
  const services = Object.entries(whole.services).filter(
    ([, { profiles }]) =>
      active === undefined || profiles === undefined || profiles.some(each => active.includes(each)),
  )
  return { services: Object.fromEntries(services), volumes: whole.volumes, variables, required }
}

/** Merges a later file over an earlier one: mappings key by key, lists concatenated, but a later `command` replaces. */
function merged(earlier: unknown, later: unknown, key = ''): unknown {
  if (Array.isArray(earlier) && Array.isArray(later)) return key === 'command' ? later : [...earlier, ...later]
  if (!isMapping(earlier) || !isMapping(later)) return later
  const result: Record<string, unknown> = { ...earlier }
  for (const [name, value] of Object.entries(later))
    result[name] = name in earlier ? merged(earlier[name], value, name) : value
  return result
}

const isMapping = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Mount of a host path or a volume in a service. `source`: path or volume; `target`: path in the container. */
export interface ComposeMount {
  readonly source: string
  readonly target: string
  readonly isReadOnly: boolean
}

export const mountsOf = ({ volumes = [] }: ComposeService): readonly ComposeMount[] =>
  volumes.map(volume => {
    if (typeof volume !== 'string') {
      return { source: volume.source, target: volume.target, isReadOnly: volume.read_only === true }
    }
    const [source, target, mode] = volume.split(':') as [string, string, string?]
    return { source, target, isReadOnly: mode === 'ro' }
  })
