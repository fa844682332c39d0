/**
 * Parses the engine addresses of the command line: `local`, or a kind and a URL, as in `vllm:http://127.0.0.1:8000`.
 * Addresses of recorded and simulated engines are parsed by fileAddress.ts.
 *
 * in   the values of --engine; one value may hold several addresses, separated by commas, each with its kind
 * out  assignments of recipe fields
 * Invariant: a URL with a user name, password, query or fragment is refused, so `run.started`, which records the URLs,
 * holds no credentials; the error does not repeat them either. A resume may use other engines.
 */
import { TroupeError } from '../runtime/errors'
import { fileEngineOverrides } from './fileAddress'

const remoteKinds = ['vllm', 'sglang', 'openai'] as const

/** Converts addresses to `--set` assignments. @throws TroupeError config.bad_engine */
export function engineOverrides(addresses: readonly string[]): readonly string[] {
  if (addresses.length === 0) return []
  const ofFiles = fileEngineOverrides(addresses)
  if (ofFiles !== undefined) return ofFiles
  const parsed = addresses.flatMap(text => text.split(',')).map(parse)
  const [{ kind }] = parsed as [{ kind: string }]
  if (parsed.some(each => each.kind !== kind)) {
    throw bad(
      `the engines are of several kinds: ${addresses.map(masked).join(', ')}; expected one kind`,
      'give only engines of one kind',
    )
  }
  if (kind === 'local' && parsed.length > 1) {
    throw bad(
      `--engine local was given ${parsed.length} times; expected once`,
      `give it once, and set the number of engines: --set engine.count=${parsed.length}`,
    )
  }
  const urls = parsed.flatMap(({ url }) => (url === undefined ? [] : [url]))
  const twice = namedTwice(kind, urls)
  if (twice !== undefined) throw bad(`${twice} are the same server`, 'give each server once')
  // A recipe's `engine.launch` starts vLLM or SGLang servers; engines of any other kind take their place.
  const launch = kind === 'vllm' || kind === 'sglang' ? [] : ['engine.launch=null']
  return [`engine.kind=${kind}`, `engine.urls=${JSON.stringify(urls)}`, ...launch]
}

function parse(text: string): { readonly kind: string; readonly url?: string } {
  if (text === 'local') return { kind: 'local' }
  const kind = remoteKinds.find(each => text.startsWith(`${each}:`))
  const hint = `write local, or ${remoteKinds.map(each => `${each}:http://127.0.0.1:8000`).join(', ')}, recorded:RUN, simulated:FILE`
  if (kind === undefined) throw bad(`'${masked(text)}' is not an engine address`, hint)
  const url = text.slice(kind.length + 1)
  const fault = urlFault(url)
  if (fault !== undefined) throw bad(fault, hint)
  return { kind, url: url.replace(/\/+$/, '') }
}

/** Returns the reason why a text is not a valid server address; undefined if it is one. */
export function urlFault(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !['http:', 'https:'].includes(url.protocol))
    return `'${masked(text)}' is not an http or https URL`
  if (url.username !== '' || url.password !== '') {
    return `'${masked(text)}' is not accepted: its credentials would end up in the log; name the environment variable with the server's key in engine.apiKey`
  }
  return /[?#]/.test(text)
    ? `'${masked(text)}' has a query or a fragment, which requests to the server would not include: leave it out`
    : undefined
}

/** Finds two URLs of the same server and returns them in quotes; undefined if there are none. */
export function namedTwice(kind: string, urls: readonly string[]): string | undefined {
  const seen = new Map<string, string>()
  for (const url of urls) {
    const server = serverOf(kind, url)
    const before = seen.get(server)
    if (before !== undefined) return `'${before}' and '${url}'`
    seen.set(server, url)
  }
  return undefined
}

/**
 * Normalises a URL, so that all spellings of a server are equal: case of the host, default port, slashes at the end,
 * and the /v1 that the openai engine adds itself.
 */
function serverOf(kind: string, url: string): string {
  const { origin, pathname } = new URL(url)
  const path = pathname.replace(/\/+$/, '')
  return origin + (kind === 'openai' ? path.replace(/\/v1$/, '') : path)
}

/** Replaces what may contain a password by ***: everything before the last @, the query, the fragment. */
const masked = (text: string): string =>
  text
    .replace(/^((?:(?:vllm|sglang|openai):)?(?:https?:\/*)?).*@/is, '$1***@')
    .replace(/[?#].*$/s, mark => `${mark[0]}***`)

const bad = (message: string, hint: string): TroupeError =>
  new TroupeError('config.bad_engine', { boundary: 'config', retriable: false, message, hint })
