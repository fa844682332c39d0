/**
 * Converts token ids and logprobs to and from the bytes of policy.proto: little-endian.
 * Invariant: a result is a copy of its own, aligned, and independent of gRPC's buffer.
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
