/**
 * The zstd codec for kafkajs, which has none of its own.
 *
 * in   kafkajs's table of codecs      out  the table with zstd in it, if this machine has a zstd codec
 */
import { promisify } from 'node:util'
import * as zlib from 'node:zlib'
import { TroupeError } from '../../errors'

/** Package with a zstd codec: an optional dependency, prebuilt for common machines. */
const zstdPackage = '@mongodb-js/zstd'

type Zstd = (bytes: Buffer, callback: (error: Error | null, result: Buffer) => void) => void

interface ZstdCodec {
  compress(bytes: Buffer): Promise<Buffer>
  decompress(bytes: Buffer): Promise<Buffer>
}

/**
 * Finds a zstd codec: Node's own from 22.15 on, else the package's, if it is installed; undefined when there is
 * neither.
 */
function findZstd(): ZstdCodec | undefined {
  const { zstdCompress, zstdDecompress } = zlib as unknown as { zstdCompress?: Zstd; zstdDecompress?: Zstd }
  if (zstdCompress !== undefined && zstdDecompress !== undefined) {
    return { compress: promisify(zstdCompress), decompress: promisify(zstdDecompress) }
  }
  try {
    const { compress, decompress } = require(zstdPackage) as ZstdCodec
    return { compress: bytes => compress(bytes), decompress: bytes => decompress(bytes) }
  } catch {
    return undefined // the package is missing, or not built for this machine; the caller reports that if zstd is needed
  }
}

/** Registers a zstd codec with kafkajs. Returns false when this machine has none. */
export function registerZstd(codecs: Record<number, unknown>, zstd: number): boolean {
  const codec = findZstd()
  if (codec === undefined) return false
  codecs[zstd] = () => ({
    compress: (encoder: { readonly buffer: Buffer }) => codec.compress(encoder.buffer),
    decompress: (bytes: Buffer) => codec.decompress(bytes),
  })
  return true
}

export function noZstd(): TroupeError {
  return new TroupeError('bus.codec_missing', {
    boundary: 'config',
    retriable: false,
    message: `compression=zstd needs a zstd codec, which Node ${process.versions.node} lacks`,
    hint: `run Node 22.15 or newer, or npm install ${zstdPackage}@1.2.2, or set compression=gzip`,
  })
}
