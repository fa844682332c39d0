/**
 * reasoning-gym families that smollm2 trains and evaluates on. No demonstration shows a problem of one of them.
 *
 * Measurement chose them: after the cold start 10 to 70 % of a family's rollouts are right, so that groups are mixed.
 * Families that the model never solves (leg_counting, bitwise_arithmetic, base_conversion …) give no gradient
 * (docs/smollm2.md).
 */
const names = ['gcd', 'lcm', 'prime_factorization', 'decimal_chain_sum', 'chain_sum', 'products'] as const

export const families = names.map(name => ({ name, options: {} }))
