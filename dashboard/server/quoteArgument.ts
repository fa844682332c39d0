/** Quotes an argument for a POSIX shell if it needs quotes, so that a copied command means the same everywhere. */
export const quoteArgument = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
