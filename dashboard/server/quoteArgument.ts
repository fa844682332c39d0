/** Quotes an argument for a POSIX shell where that is needed, so that a copied command means the same everywhere. */
export const quoteArgument = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
