/** The compose file as Compose would read it without an .env: merged, defaults put in. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'

interface ComposeService {
  readonly image: string
  readonly command?: readonly string[]
  readonly ports?: readonly string[]
  readonly security_opt?: readonly string[]
  readonly profiles?: readonly string[]
  readonly volumes?: readonly string[]
  readonly network_mode?: string
  readonly environment?: Readonly<Record<string, string>>
  readonly deploy?: { readonly replicas?: number; readonly resources?: unknown }
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>
}

export interface ComposeFile {
  readonly services: Readonly<Record<string, ComposeService>>
  readonly volumes: Readonly<Record<string, unknown>>
  /** Names of the variables that it reads, with their defaults. */
  readonly variables: ReadonlyMap<string, string>
}

export const composeRoot = join(__dirname, '../..')

export function composeFile(): ComposeFile {
  const variables = new Map<string, string>()
  const text = readFileSync(join(composeRoot, 'docker-compose.yml'), 'utf8').replaceAll(
    /\$\{([A-Z_]+)(?::-([^}]*))?\}/g,
    (_, name: string, value: string | undefined) => {
      if (value === undefined) throw new Error(`${name} has no default: compose would not work without an .env`)
      variables.set(name, value)
      return value
    },
  )
  return { ...(parse(text, { merge: true }) as Omit<ComposeFile, 'variables'>), variables }
}
