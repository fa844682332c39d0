/**
 * Removes the byte order mark that some editors and exports put before a file's text: JSON.parse refuses it, and
 * RFC 8259 §8.1 lets a parser ignore it.
 */
export const withoutBom = (text: string): string => (text.startsWith('\uFEFF') ? text.slice(1) : text)
