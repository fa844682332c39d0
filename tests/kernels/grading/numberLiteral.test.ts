/** A number in digits is told from an expression of its value: a restated problem is no answer. */
import fc from 'fast-check'
import { isNumberLiteral } from '../../../kernels'

test.each([
  ...[
    '5050',
    '-17',
    '\u221217',
    '1,234',
    '1{,}234',
    '42.0',
    '3.25',
    '.5',
    '$5050$',
    '\\text{5050}',
    '(5)',
    '\\left(5\\right)',
  ],
  ...['5\\%', '60^\\circ', '60°', '2 \\pmod{7}', '1.05 \\times 10^{3}', '10 \\cdot 10^3', '2e5', '1,234.5'],
  ...['x = 5', 'f(3) = 5', 'x_{1} = 5', 'a + b = 5', '= 5', '\\approx 3.14', '\\gcd(10,15) = 5', 'x = 2 + 3 = 5'],
])('%s is written as a number', text => {
  expect(isNumberLiteral(text)).toBe(true)
})

test.each([
  ...[
    '\\sum_{k=1}^{100} k',
    '2^{100} \\mod 7',
    '\\gcd(10,15)',
    '6=5',
    '2+3=5',
    '=6=5',
    '\\frac{10}{2}',
    '10/2',
    '5!',
    '2^{10}',
  ],
  ...[
    '5 + 0',
    '1 \\cdot 5',
    '\\sqrt{25}',
    '\\binom{5}{1}',
    '-(-5)',
    '5 \\text{ or } 6',
    '5, 6',
    '5 6',
    'x',
    '',
    '\\int_0^5 dx',
  ],
  ...['x = 2 + 3', '10^3 \\times 5', '\\lfloor 5.5 \\rfloor', '\\text{5 + 0}', '5\\cdot 10^3 + 1', '1,23', '\\pmod{7}'],
])("'%s' is no number in digits", text => {
  expect(isNumberLiteral(text)).toBe(false)
})

test('every integer and decimal that is written out is one, and no text makes it throw or hang', () => {
  fc.assert(fc.property(fc.integer(), n => isNumberLiteral(String(n)) && isNumberLiteral(`${n}.5`)))
  fc.assert(
    fc.property(
      fc.string({ maxLength: 2000, unit: fc.constantFrom(...'0123456789.,=^{}()\\ e-+%x$'.split('')) }),
      text => {
        const began = performance.now()
        expect(typeof isNumberLiteral(text)).toBe('boolean')
        expect(performance.now() - began).toBeLessThan(1000)
      },
    ),
  )
})
