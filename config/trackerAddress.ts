/**
 * Parses addresses of experiment trackers, as `track --to` and a recipe's `trackers` take them.
 *
 * in   a text such as mlflow:URL#EXPERIMENT        out  its parts, or the reason why it is no address
 */
import { percentDecoded } from './percentDecoded'

export type TrackerAddress =
  | { readonly kind: 'tensorboard'; readonly directory: string }
  | { readonly kind: 'wandb'; readonly project: string; readonly entity?: string }
  | { readonly kind: 'mlflow'; readonly url: string; readonly experiment?: string }
  | { readonly kind: 'trackio'; readonly url: string; readonly project?: string }
  /** OpenTelemetry. `content`: true if spans carry prompts, answers, arguments and results. */
  | { readonly kind: 'otlp'; readonly url: string; readonly content: boolean }

export const trackerForms =
  'tensorboard:DIRECTORY, wandb:[ENTITY/]PROJECT, mlflow:URL[#EXPERIMENT], trackio:URL[#PROJECT] or otlp:URL[#content]'

/** Variables that the trackers' own clients read instead of a password in the address. */
const credentials = {
  mlflow: 'MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD',
  trackio: 'TRACKIO_WRITE_TOKEN',
  otlp: 'OTEL_EXPORTER_OTLP_HEADERS',
} as const

/** Parses an address. Returns a string, the reason, if the text is not an address. */
export function trackerAddress(text: string): TrackerAddress | string {
  const [, kind, place = ''] = /^([a-z]+):(.+)$/s.exec(text) ?? []
  if (kind === 'tensorboard') return { kind, directory: place }
  if (kind === 'wandb') {
    const [, entity, project] = /^(?:([\w.-]+)\/)?([\w.-]{1,128})$/.exec(place) ?? []
    if (project === undefined)
      return "expected wandb:PROJECT or wandb:ENTITY/PROJECT, of letters, digits, '-', '_' and '.'; PROJECT has at most 128 characters"
    return { kind, project, ...(entity === undefined ? {} : { entity }) }
  }
  if (kind !== 'mlflow' && kind !== 'trackio' && kind !== 'otlp') return `expected ${trackerForms}`
  const url = URL.canParse(place) ? new URL(place) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol))
    return `expected ${kind}: and an http or https URL, as in ${kind}:http://HOST:PORT`
  if (url.username !== '' || url.password !== '' || url.searchParams.has('write_token'))
    return `a URL with a password or token would be recorded; set ${credentials[kind]}`
  const named = percentDecoded(url.hash.slice(1))
  if (named === undefined) return `the part after # has a malformed escape: a plain % is written %25`
  url.hash = ''
  if (kind === 'otlp') {
    if (named !== '' && named !== 'content') return `expected otlp:URL or otlp:URL#content, not #${named}`
    return { kind, url: url.href, content: named === 'content' }
  }
  if (kind === 'trackio') return { kind, url: url.href, ...(named === '' ? {} : { project: named }) }
  return { kind, url: url.href, ...(named === '' ? {} : { experiment: named }) }
}
