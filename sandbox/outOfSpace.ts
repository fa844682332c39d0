/**
 * Recognises errors of the operating system for a full disk, and for a file that has reached its largest size.
 *
 * in   whatever a write threw      out  true for such an error
 * Invariant: a file at its size limit (EFBIG: `ulimit -f`, or the file system's largest file) is no full disk: waiting
 * for room would not help.
 */

const codes: ReadonlySet<unknown> = new Set(['ENOSPC', 'EDQUOT', 28 /* ENOSPC */, 122 /* EDQUOT */])
const tooLarge: ReadonlySet<unknown> = new Set(['EFBIG', 27 /* EFBIG */])

const codeOf = (thrown: unknown) => (thrown as { code?: unknown } | undefined)?.code

/** True for an error of the operating system that says: the disk has no space or inodes left, or a quota is used up. */
export const isOutOfSpace = (thrown: unknown): boolean => codes.has(codeOf(thrown))

/** True for an error of the operating system that says: the file has reached its largest size. */
export const isFileTooLarge = (thrown: unknown): boolean => tooLarge.has(codeOf(thrown))
