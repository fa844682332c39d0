/** reasoning-gym's families that smollm2 is trained and evaluated on; none of them is demonstrated. */
const names = [
  'gcd',
  'lcm',
  'prime_factorization',
  'decimal_chain_sum',
  'chain_sum',
  'basic_arithmetic',
  'count_bits',
  'simple_equations',
] as const

export const families = names.map(name => ({ name, options: {} }))
