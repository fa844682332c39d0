/**
 * Precision that a recipe's `dtype` stands for.
 *
 * in   `dtype`, the torch device        out  float32 or bfloat16
 * `auto` is bfloat16 on a GPU and float32 on the CPU, as the trainer and the engine decide. A device `auto` counts as a
 * GPU, since an estimate is for the recipe's hardware.
 */
type Dtype = 'auto' | 'float32' | 'bfloat16'

export const precisionOf = (dtype: Dtype, device: string): Exclude<Dtype, 'auto'> =>
  dtype === 'auto' ? (device.startsWith('cpu') ? 'float32' : 'bfloat16') : dtype

/** Bytes of a number of this precision. */
export const bytesOf = (dtype: Dtype, device: string): number => (precisionOf(dtype, device) === 'bfloat16' ? 2 : 4)
