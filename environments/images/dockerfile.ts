/**
 * Reads a Dockerfile of the kind that tasks have: one stage, no build mounts.
 *
 * in   the text        out  its instructions, or an error that names the line
 * Invariant: only instructions for a container that runs the image's own command (CMD, ENTRYPOINT, EXPOSE, VOLUME,
 * LABEL, HEALTHCHECK, STOPSIGNAL) are ignored, since Troupe runs a task's commands instead; and MAINTAINER. Any other
 * instruction whose effect Troupe cannot produce is refused.
 */
import { environmentError } from '../drivers/errors'

export type Instruction =
  | { readonly kind: 'from'; readonly image: string }
  | { readonly kind: 'run'; readonly command: string | readonly string[] }
  | {
      readonly kind: 'copy'
      readonly sources: readonly string[]
      readonly target: string
      readonly chown?: string
      readonly chmod?: string
    }
  | { readonly kind: 'env'; readonly values: Readonly<Record<string, string>> }
  | { readonly kind: 'workdir'; readonly path: string }
  | { readonly kind: 'user'; readonly user: string }

const withoutEffect = new Set([
  'CMD',
  'ENTRYPOINT',
  'EXPOSE',
  'VOLUME',
  'LABEL',
  'HEALTHCHECK',
  'STOPSIGNAL',
  'MAINTAINER',
])

/** Parses a Dockerfile. @throws TroupeError environment.no_image, with the line, for what is not supported here */
export function readDockerfile(text: string, file: string): readonly Instruction[] {
  const found: Instruction[] = []
  const variables = new Map<string, string>()
  for (const { line, number } of logicalLines(text)) {
    const refuse = (why: string): never => {
      throw environmentError('environment.no_image', `${file}:${number}: ${why}`, {
        hint: 'build the image elsewhere, `docker save` it, and import it: troupe tasks image FILE.tar --name NAME',
      })
    }
    const [, word = '', rest = ''] = /^(\S+)\s*([\s\S]*)$/.exec(line) ?? []
    const name = word.toUpperCase()
    const expand = (value: string) => expanded(value, variables)
    if (withoutEffect.has(name)) continue
    if (found.length === 0 && name !== 'FROM' && name !== 'ARG') refuse(`${name} before FROM, where only ARG may stand`)
    switch (name) {
      case 'FROM': {
        if (found.length > 0) refuse('a second stage (FROM): only Dockerfiles of one stage are built here')
        const [image = ''] = rest.replace(/--platform=\S+\s+/, '').split(/\s+/)
        found.push({ kind: 'from', image: expand(image) })
        break
      }
      case 'ARG': {
        const [, arg = '', value] = /^(\w+)(?:=([\s\S]*))?$/.exec(rest.trim()) ?? []
        if (value !== undefined) variables.set(arg, expand(unquoted(value)))
        break
      }
      case 'ENV': {
        const values = pairs(rest, expand)
        for (const [key, value] of Object.entries(values)) variables.set(key, value)
        found.push({ kind: 'env', values })
        break
      }
      case 'RUN':
        if (rest.startsWith('--')) refuse(`RUN ${rest.split(/\s/)[0]}: build mounts and options are not known here`)
        if (/<<-?['"]?\w+/.test(rest)) refuse('RUN with a here-document is not supported here')
        found.push({ kind: 'run', command: words(rest) ?? rest })
        break
      case 'COPY':
      case 'ADD': {
        const options = new Map(
          [...rest.matchAll(/--(\w+)(?:=(\S+))?\s/g)].map(([, key = '', value = '']) => [key, value]),
        )
        const other = [...options.keys()].find(key => key !== 'chown' && key !== 'chmod')
        if (other !== undefined) refuse(`${name} --${other} is not supported here, only --chown and --chmod`)
        const plain = rest.replace(/^(--\S+\s+)*/, '')
        const parts = (words(plain) ?? plain.split(/\s+/)).map(expand)
        if (parts.some(part => /^\w+:\/\//.test(part))) refuse(`${name} from a URL is not supported here`)
        if (name === 'ADD' && parts.some(part => /\.(tar|tgz|tar\.\w+)$/.test(part)))
          refuse('ADD of an archive is not supported here: use COPY and RUN tar')
        if (parts.some(part => /[*?[]/.test(part))) refuse(`${name} with a pattern (*, ? or [) is not supported here`)
        if (parts.length < 2) refuse(`${name} names no target: expected ${name} SOURCE… TARGET`)
        const owner = options.get('chown')
        const mode = options.get('chmod')
        found.push({
          kind: 'copy',
          sources: parts.slice(0, -1),
          target: parts.at(-1) as string,
          ...(owner ? { chown: expand(owner) } : {}),
          ...(mode ? { chmod: mode } : {}),
        })
        break
      }
      case 'WORKDIR':
        found.push({ kind: 'workdir', path: expand(unquoted(rest.trim())) })
        break
      case 'USER':
        found.push({ kind: 'user', user: expand(rest.trim()) })
        break
      default:
        refuse(`${name}: this instruction is not known here`)
    }
  }
  if (found.length === 0)
    throw environmentError('environment.no_image', `${file} has no FROM instruction, which has to come first`)
  return found
}

/**
 * Joins continued lines, and leaves out comments and empty lines. `number`: 1-based number of the first line joined.
 */
function logicalLines(text: string): readonly { readonly line: string; readonly number: number }[] {
  const found: { line: string; number: number }[] = []
  let open: { line: string; number: number } | undefined
  for (const [at, raw] of text.split(/\r?\n/).entries()) {
    if (/^\s*(#|$)/.test(raw)) continue
    const isContinued = /\\\s*$/.test(raw)
    const part = isContinued ? raw.replace(/\\\s*$/, '') : raw
    open = open === undefined ? { line: part.trimStart(), number: at + 1 } : { ...open, line: `${open.line}${part}` }
    if (isContinued) continue
    found.push(open)
    open = undefined
  }
  return open === undefined ? found : [...found, open]
}

/** Returns the words of the exec form `["a", "b"]`; undefined for the shell form. */
function words(text: string): readonly string[] | undefined {
  if (!text.trim().startsWith('[')) return undefined
  try {
    const value = JSON.parse(text)
    return Array.isArray(value) && value.every(word => typeof word === 'string') ? value : undefined
  } catch {
    return undefined
  }
}

const unquoted = (text: string) => text.replace(/^(["'])([\s\S]*)\1$/, '$2')

function expanded(text: string, variables: ReadonlyMap<string, string>): string {
  return text.replace(/\\\$|\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)/g, (all, braced, fallback, bare) =>
    all === '\\$' ? '$' : variables.get(braced ?? bare) || fallback || '',
  )
}

/** Reads the variables of ENV: `A=1 B="two words"`, or the old form `A all the rest`. */
function pairs(text: string, expand: (value: string) => string): Readonly<Record<string, string>> {
  if (!/^\w+=/.test(text)) {
    const [, name = '', value = ''] = /^(\w+)\s+([\s\S]*)$/.exec(text) ?? []
    return { [name]: expand(value.trim()) }
  }
  const found = text.matchAll(/(\w+)=("(?:[^"\\]|\\.)*"|'[^']*'|(?:\\.|\S)*)/g)
  return Object.fromEntries(
    [...found].map(([, name, value = '']) => [name, expand(unquoted(value).replace(/\\([\s"])/g, '$1'))]),
  )
}
