/**
 * Parses addresses of experiment trackers, as `track --to` and a recipe's `trackers` take them.
 *
 * in   tensorboard:DIRECTORY, mlflow:URL or mlflow:URL#EXPERIMENT        out  its parts, or the reason why it is none
 */
export type TrackerAddress =
  | { readonly kind: 'tensorboard'; readonly directory: string }
  | { readonly kind: 'mlflow'; readonly url: string; readonly experiment?: string }

export const trackerForms = 'tensorboard:DIRECTORY or mlflow:URL[#EXPERIMENT]'

/** Parses an address. Returns a string, the reason, if the text is not an address. */
export function trackerAddress(text: string): TrackerAddress | string {
  const [, kind, place = ''] = /^([a-z]+):(.+)$/s.exec(text) ?? []
  if (kind === 'tensorboard') return { kind, directory: place }
  if (kind !== 'mlflow') return `expected ${trackerForms}`
  const url = URL.canParse(place) ? new URL(place) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol)) return 'expected mlflow:http://HOST:PORT'
  if (url.username !== '' || url.password !== '')
    return 'a URL with a password would be recorded; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD'
  const experiment = decodeURIComponent(url.hash.slice(1))
  url.hash = ''
  return { kind, url: url.href, ...(experiment === '' ? {} : { experiment }) }
}
