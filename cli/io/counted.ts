/** Formats a number with its noun: `1 group`, `2 groups`. `many`: the plural, where it is not the noun with an `s`. */
export const counted = (n: number, noun: string, many = `${noun}s`): string => `${n} ${n === 1 ? noun : many}`
