/**
 * The page's start: shows the view that the address names, in the theme that was chosen last.
 *
 * in   `location.hash`        out  the page
 * Invariant: text of models and tools reaches the page as text nodes only; no view sets markup.
 */
import './page.css'
import 'uplot/dist/uPlot.min.css'
import { render } from 'preact'
import { html } from './html'
import { applyTheme } from './parts/theme'
import { Shell } from './views/shell'

applyTheme()
render(html`<${Shell} />`, document.getElementById('page')!)
