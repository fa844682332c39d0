/**
 * Formats the results of the smoke run on a device as a Markdown page: the device and its versions, a row for each
 * figure.
 *
 * in   lines of policy/smoke        out  Markdown
 */

/** First line of the smoke run: the device, the versions of torch and CUDA, and the shape of the model. */
export interface DeviceLine {
  readonly shape: string
  readonly device: string
  readonly name?: string
  readonly memoryGib?: number
  readonly torch: string
  readonly cuda?: string
  readonly threads: number
}

/** A measured figure, or the reason why it was not measured (`why`). `ok`: null when the check was not run. */
export interface FigureLine {
  readonly check: string
  readonly figure: string
  readonly value?: number | string
  readonly unit?: string
  readonly bound?: string | null
  readonly ok: boolean | null
  readonly why?: string
}

export function gpuPage(device: DeviceLine, figures: readonly FigureLine[], date: string): string {
  const name = device.name ?? `no GPU: ${device.device}, ${device.threads} threads`
  const memory = device.memoryGib === undefined ? '' : `, ${device.memoryGib} GiB`
  const versions = `torch ${device.torch}${device.cuda === undefined ? '' : `, CUDA ${device.cuda}`}`
  const rows = figures.map(({ check, figure, value, unit, bound, ok, why }) =>
    cells([check, figure, shown(value, unit), bound ?? '', ok === null ? 'not run' : ok ? 'yes' : '**no**', why ?? '']),
  )
  return [
    '# What a GPU showed',
    '',
    `Written by \`npm run smoke:gpu\` on ${date}: ${name}${memory}; ${versions}; random weights in the shape \`${device.shape}\`.`,
    '',
    cells(['check', 'figure', 'value', 'bound', 'kept', '']),
    cells(['---', '---', '---', '---', '---', '---']),
    ...rows,
    '',
  ].join('\n')
}

const cells = (values: readonly string[]) => `| ${values.map(value => value.replaceAll(/[|\n]/g, ' ')).join(' | ')} |`

function shown(value: number | string | undefined, unit = ''): string {
  if (value === undefined) return '–'
  const number = typeof value === 'number' ? String(Number(value.toPrecision(3))) : value
  return unit === '' ? number : `${number} ${unit}`
}
