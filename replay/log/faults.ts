/**
 * Records of a run that cannot be read: the kind of each fault and its position in the log.
 *
 * in   errors of the bus, the codec and the blob store; gaps        out  faults, in the order in which they were met
 * Invariant: a fault of one kind at one position is listed once, however often a read meets it.
 */
import { MessageError } from '../../messages/messageError'
import { TroupeError } from '../../runtime/errors'
import { type Place, placeText } from './place'

/**
 * Kinds of faults. gap: offsets are missing. torn-tail: the last record of a partition cannot be decoded. newer-schema:
 * a newer Troupe wrote the message. unknown-type: this Troupe does not know the type of the message. unreadable:
 * another record that cannot be decoded, or a stretch that the bus cannot read. blob: the blob that a record refers to
 * cannot be read.
 */
export type FaultKind = 'gap' | 'torn-tail' | 'newer-schema' | 'unknown-type' | 'unreadable' | 'blob'

export interface Fault extends Place {
  readonly kind: FaultKind
  readonly message: string
}

export const faultText = (fault: Fault): string => `${placeText(fault)} ${fault.kind}: ${fault.message}`

/** Maps an error to the kind of fault; undefined when the error does not come from the record. */
export function faultKind(error: Error): FaultKind | undefined {
  if (error instanceof TroupeError && error.code.startsWith('blob.')) return 'blob'
  if (!(error instanceof MessageError)) return undefined
  if (error.code === 'codec.newer_version') return 'newer-schema'
  return error.code === 'codec.unknown_type' ? 'unknown-type' : 'unreadable'
}

export function faultList() {
  const faults: Fault[] = []
  const seen = new Set<string>()
  return {
    faults: faults as readonly Fault[],
    note(fault: Fault): void {
      const key = `${fault.kind} ${placeText(fault)}`
      if (seen.has(key)) return
      seen.add(key)
      faults.push(fault)
    },
  }
}
