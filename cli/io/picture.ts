/**
 * Renders pictures as SVG, by Vega-Lite.
 *
 * in   a Vega-Lite specification with its data inside      out  the text of an SVG
 * Only pictures need the packages vega and vega-lite, so a user's installation does not include them.
 */
import type { TopLevelSpec } from 'vega-lite' with { 'resolution-mode': 'import' }
import { asError, TroupeError } from '../../runtime/errors'
import { isCheckout } from '../../runtime/python'

/**
 * Renders a specification as SVG text.
 * @throws TroupeError cli.no_pictures if vega or vega-lite is not installed
 */
export async function svgOf(spec: TopLevelSpec): Promise<string> {
  const { vega, vegaLite } = await load()
  const { spec: compiled } = vegaLite.compile({ background: 'white', ...spec })
  const view = new vega.View(vega.parse(compiled), { renderer: 'none' })
  try {
    return `${await view.toSVG()}\n`
  } finally {
    view.finalize()
  }
}

async function load() {
  try {
    const [vega, vegaLite] = await Promise.all([import('vega'), import('vega-lite')])
    return { vega, vegaLite }
  } catch (cause) {
    throw new TroupeError('cli.no_pictures', {
      boundary: 'cli',
      retriable: false,
      message: `pictures need the packages vega and vega-lite, which cannot be loaded: ${asError(cause).message.split('\n')[0]}`,
      hint: isCheckout() ? 'npm run setup' : 'npm install vega vega-lite',
      cause,
    })
  }
}
