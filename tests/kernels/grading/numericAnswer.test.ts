/** Promise: GSM8K's strict rule reads the number after the last `####`, its lenient rule the last number of the text. */
import fc from 'fast-check'
import { answerText, extractAnswer, sameInteger } from '../../../kernels'

const strict = (text: string) => extractAnswer(text, 'hashes')
const lenient = (text: string) => extractAnswer(text, 'last-number')

test.each([
  ['so 18 in all.\n#### 18', '18', '18'],
  ['#### 1,234.', '1234', '1234'],
  ['#### $70,000', '70000', '70000'],
  ['#### -$5', '-5', '-5'],
  ['#### −7', '-7', '-7'],
  ['####3', '3', '3'],
  ['#### 12.50 dollars', '12.50', '12.50'],
  ['#### 4\nThat is 4 of 9', '4', '9'],
  ['#### 4 or, corrected,\n#### 5', '5', '5'],
  ['#### 5\n####', '5', '5'],
  ['The answer is 42.', null, '42'],
  ['10-4', null, '4'],
  ['x=-4', null, '-4'],
  ['(2)-3', null, '3'],
  ['at 3, 4, and 5, then stop', null, '5'],
  ['.5', null, '.5'],
  ['none', null, null],
  ['#### none', null, null],
  ['', null, null],
])('%j is %j by the strict and %j by the lenient rule', (text, byHashes, byLast) => {
  expect(strict(text)).toBe(byHashes)
  expect(lenient(text)).toBe(byLast)
  expect(answerText(text, 'hashes')).toBe(byHashes)
  expect(answerText(text, 'last-number')).toBe(byLast)
})

test('any integer, written with or without groups of thousands, is read back by both rules', () => {
  fc.assert(
    fc.property(fc.integer(), fc.boolean(), fc.stringMatching(/^[ a-z.]{0,40}$/), (n, grouped, before) => {
      const written = grouped ? n.toLocaleString('en-US') : String(n)
      const text = `${before}\n#### ${written}.`
      expect(sameInteger(strict(text)!, String(n))).toBe(true)
      expect(sameInteger(lenient(text)!, String(n))).toBe(true)
    }),
  )
})

test('whatever the text, a rule answers with a number or with nothing', () => {
  const texts = fc.oneof(fc.string(), fc.stringMatching(/^[#$ ,.\-−0-9]{0,60}$/))
  fc.assert(
    fc.property(texts, text => {
      for (const found of [strict(text), lenient(text)]) {
        if (found !== null) expect(Number.isFinite(Number(found))).toBe(true)
      }
      if (strict(text) !== null) expect(lenient(text)).not.toBeNull()
    }),
  )
})

test.each(['1,', '#### ', '-', '$', '9'])('a text of 200,000 × %j is read in linear time', unit => {
  const text = unit.repeat(200_000)
  expect(() => [strict(text), lenient(text)]).not.toThrow()
})
