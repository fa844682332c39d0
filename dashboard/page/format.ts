/** Formats numbers, times and durations for people. */

export const percent = (share: number | null | undefined, digits = 1): string =>
  share === null || share === undefined ? '–' : `${(share * 100).toFixed(digits)} %`

/** Orders rewards from the highest to the lowest; trajectories without a reward come last. */
export function byReward(a: number | null, b: number | null): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null)
  return b - a
}

/** Made once, because `toLocaleString` makes such a formatter at each call. */
const grouped = new Intl.NumberFormat('en')

export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return '–'
  if (Number.isInteger(value)) return grouped.format(value)
  const size = Math.abs(value)
  if (size >= 1000) return grouped.format(Math.round(value))
  return size >= 100 ? value.toFixed(0) : size >= 1 ? value.toFixed(2) : value.toPrecision(3)
}

export const signed = (value: number | null | undefined): string =>
  value === null || value === undefined ? '–' : `${value > 0 ? '+' : value < 0 ? '−' : ''}${Math.abs(value).toFixed(3)}`

export function milliseconds(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return '–'
  return ms < 1000 ? `${Math.round(ms)} ms` : seconds(ms / 1000)
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–'
  const s = Math.max(0, value)
  if (s < 10) return `${s.toFixed(1)} s`
  if (s < 60) return `${Math.round(s)} s`
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(Math.round(s % 60)).padStart(2, '0')} s`
  return s < 86_400
    ? `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`
    : `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`
}

export const ago = (at: number): string => (at === 0 ? '–' : `${seconds((Date.now() - at) / 1000)} ago`)

export const date = (at: number): string =>
  at === 0 ? '–' : new Date(at).toLocaleString('sv', { dateStyle: 'short', timeStyle: 'short' })

export const clock = (at: number): string => {
  const text = new Date(at).toLocaleTimeString('sv')
  return `${text}.${String(Math.floor(at) % 1000).padStart(3, '0')}`
}
