/** The index finds what a search for each form by itself finds, in one pass. */
import fc from 'fast-check'
import { type Form, FormIndex } from '../../../runtime/secrets/formIndex'

/** Marks the characters of each occurrence of each form, and replaces each row of overlapping occurrences. */
function slowly(text: string, forms: readonly Form[], minChars: number): string {
  const found = forms
    .filter(({ chars }) => chars >= minChars)
    .flatMap(({ form }) =>
      [...Array(text.length).keys()].filter(at => text.startsWith(form, at)).map(at => [at, at + form.length] as const),
    )
    .sort(([a], [b]) => a - b)
  const merged: [number, number][] = []
  for (const [from, end] of found) {
    const last = merged.at(-1)
    if (last !== undefined && from < last[1]) last[1] = Math.max(last[1], end)
    else merged.push([from, end])
  }
  return merged.reduceRight((shown, [from, end]) => `${shown.slice(0, from)}[redacted]${shown.slice(end)}`, text)
}

const letters = (minLength: number, maxLength: number) =>
  fc.array(fc.constantFrom('a', 'b', 'ü', '界'), { minLength, maxLength }).map(all => all.join(''))
const forms = fc.array(fc.record({ form: letters(4, 8), chars: fc.integer({ min: 1, max: 3 }) }), { maxLength: 6 })

test('every occurrence is replaced, overlapping ones as one, and nothing else; a form that was deleted stays', () => {
  fc.assert(
    fc.property(letters(0, 60), forms, forms, fc.integer({ min: 1, max: 3 }), (text, kept, deleted, minChars) => {
      const index = new FormIndex()
      for (const form of [...kept, ...deleted]) index.add(form)
      for (const form of deleted) index.delete(form)
      expect(index.redact(text, minChars)).toBe(slowly(text, kept, minChars))
    }),
    { numRuns: 2000 },
  )
})

test('a place where a thousand secrets with one prefix could begin is compared with a few of them', () => {
  let compared = 0
  class Counting extends FormIndex {
    protected override compare(...given: Parameters<FormIndex['compare']>): number {
      compared++
      return super.compare(...given)
    }
  }
  const index = new Counting()
  const formOf = (k: number) => `sk-live-${(k * 7919) % 100_003}-${'x'.repeat(k % 30)}`
  for (let k = 0; k < 1000; k++) index.add({ form: formOf(k), chars: 16 })
  const places = 200
  const text = 'sk-live-keys are hidden, sk-live-5'.repeat(places / 2)
  expect(index.redact(text, 1)).toBe(text)
  expect(compared / places).toBeLessThan(60)
  expect(index.redact(`${text} ${formOf(700)}`, 1)).toBe(`${text} [redacted]`)
})
