/**
 * Keys of chunks: (u32 partition id, u48 offset of the chunk's last record), big-endian.
 *
 * in   a partition id, an offset      out  10 bytes, ordered as the records are
 */
export const recordKeyBytes = 10

export function recordKey(partitionId: number, offset: number): Buffer {
  const key = Buffer.allocUnsafe(recordKeyBytes)
  key.writeUInt32BE(partitionId, 0)
  key.writeUIntBE(offset, 4, 6)
  return key
}

export const offsetOf = (key: Buffer): number => key.readUIntBE(4, 6)
export const partitionIdOf = (key: Buffer): number => key.readUInt32BE(0)
