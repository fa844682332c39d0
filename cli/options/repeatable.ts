/** A reader for options that may be given many times: their values, in order. */
export const gather = (value: string, before: readonly string[]): readonly string[] => [...before, value]
