/** For JSON.stringify: token ids and logprobs as arrays of numbers. */
export const plainArrays = (_key: string, value: unknown) =>
  value instanceof Int32Array || value instanceof Float32Array ? [...value] : value
