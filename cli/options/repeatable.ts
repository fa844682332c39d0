/** Parses an option that may be given several times: collects its values in order. */
export const repeatable = (value: string, before: readonly string[]): readonly string[] => [...before, value]
