/**
 * Converts token ids to the little-endian bytes of policy.proto, and such bytes to token ids or floats (logprobs).
 * Invariant: what is converted from bytes is an aligned copy, independent of gRPC's buffer; `bytesOfTokens` returns a
 * view.
 */

export function bytesOfTokens(tokens: Int32Array): Buffer {
  return Buffer.from(tokens.buffer, tokens.byteOffset, tokens.byteLength)
}

export function tokensOfBytes(bytes: Buffer): Int32Array {
  const copy = new Int32Array(bytes.length >> 2)
  Buffer.from(copy.buffer).set(bytes.subarray(0, copy.byteLength))
  return copy
}

export function floatsOfBytes(bytes: Buffer): Float32Array {
  const copy = new Float32Array(bytes.length >> 2)
  Buffer.from(copy.buffer).set(bytes.subarray(0, copy.byteLength))
  return copy
}
