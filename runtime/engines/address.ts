/**
 * Where engines are, as the command line says it: `local`, or a kind and a URL, `vllm:http://127.0.0.1:8000`.
 *
 * in   the values of --engine, one for each engine        out  assignments of recipe fields
 * Invariant: what is recorded with a run says where its engines were; a resume may name others.
 */
import { TroupeError } from '../errors'
import { fileEngineOverrides } from './fileAddress'

const remoteKinds = ['vllm', 'sglang', 'openai'] as const

/** @throws TroupeError config.bad_engine */
export function engineOverrides(addresses: readonly string[]): readonly string[] {
  if (addresses.length === 0) return []
  const ofFiles = fileEngineOverrides(addresses)
  if (ofFiles !== undefined) return ofFiles
  const parsed = addresses.flatMap(text => text.split(',')).map(parse)
  const [{ kind }] = parsed as [{ kind: string }]
  if (parsed.some(each => each.kind !== kind)) {
    throw bad(`engines of several kinds: ${addresses.join(', ')}`, 'name engines of one kind')
  }
  const urls = parsed.flatMap(({ url }) => (url === undefined ? [] : [url]))
  return [`engine.kind=${kind}`, `engine.urls=${JSON.stringify(urls)}`]
}

function parse(text: string): { readonly kind: string; readonly url?: string } {
  if (text === 'local') return { kind: 'local' }
  const kind = remoteKinds.find(each => text.startsWith(`${each}:`))
  const hint = `write local, or ${remoteKinds.map(each => `${each}:http://127.0.0.1:8000`).join(', ')}, recorded:RUN, simulated:FILE`
  if (kind === undefined) throw bad(`'${text}' is no engine`, hint)
  const url = text.slice(kind.length + 1)
  if (!isHttpUrl(url)) throw bad(`'${text}': '${url}' is no http or https URL`, hint)
  return { kind, url: url.replace(/\/+$/, '') }
}

/** An absolute URL without credentials: those would end up in the log. */
export function isHttpUrl(text: string): boolean {
  if (!URL.canParse(text)) return false
  const { protocol, username, password } = new URL(text)
  return ['http:', 'https:'].includes(protocol) && username === '' && password === ''
}

const bad = (message: string, hint: string): TroupeError =>
  new TroupeError('config.bad_engine', { boundary: 'config', retriable: false, message, hint })
