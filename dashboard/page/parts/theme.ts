/** Dark or light: the reader's choice, else that of the system. */
import { signal } from '@preact/signals'

const key = 'troupe-theme'
type Theme = 'dark' | 'light'

const systems = (): Theme => (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')
const chosen = (): Theme | null => {
  const text = localStorage.getItem(key)
  return text === 'dark' || text === 'light' ? text : null
}

export const theme = signal<Theme>('light')

export function applyTheme(): void {
  theme.value = chosen() ?? systems()
  document.documentElement.dataset.theme = theme.value
}

export function switchTheme(): void {
  localStorage.setItem(key, theme.value === 'dark' ? 'light' : 'dark')
  applyTheme()
}

/** Value of a colour of page.css, for canvases. */
export const colour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()
