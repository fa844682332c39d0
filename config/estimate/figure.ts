/**
 * A number of the estimate with its unit and the formula that it comes from, and how numbers are written in formulas.
 */

export interface Figure {
  readonly what: string
  readonly value: number
  readonly unit: string
  readonly formula: string
}

export const figure = (what: string, value: number, unit: string, formula: string): Figure => ({
  ...{ what, value, unit, formula },
})

export const gib = 2 ** 30
export const billions = (n: number) => `${(n / 1e9).toFixed(2)}e9`
export const count = (n: number) => Math.round(n).toLocaleString('en-US')
