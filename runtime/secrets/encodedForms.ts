/**
 * Encoded forms of a secret, as servers and libraries write it into their texts.
 *
 * in   a secret's value        out  the texts to look for
 * The forms: the value itself; JSON, also within a text that is JSON again, with ASCII characters only, and with `\/`;
 * percent-encoding of a URL's parts and of forms; HTML; base64 and base64url, also where the value begins at the second
 * or third byte of a group of three, as after `user:`.
 */

export function encodedForms(secret: string): readonly string[] {
  const json = inJson(secret)
  const percent = encodeURIComponent(secret)
  return [
    ...new Set([
      ...[secret, json, inJson(json), inAscii(json), json.replaceAll('/', '\\/')],
      ...[percent, percent.replaceAll('%2F', '/'), encodeURI(secret), inForm(secret)].flatMap(withLowerEscapes),
      ...[inHtml(secret, '&#39;'), inHtml(secret, '&#x27;')],
      ...inBase64(secret),
    ]),
  ]
}

const inJson = (text: string): string => JSON.stringify(text).slice(1, -1)

/** Escapes all characters beyond ASCII, as Python's `json.dumps` does. */
const inAscii = (json: string): string =>
  json.replace(/[\u0080-\uffff]/g, one => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)

const inForm = (text: string): string => new URLSearchParams([['', text]]).toString().slice(1)

const withLowerEscapes = (text: string): readonly string[] => [
  text,
  text.replace(/%[0-9A-F]{2}/g, escaped => escaped.toLowerCase()),
]

const inHtml = (text: string, apostrophe: string): string =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", apostrophe)

/**
 * Base64 of the secret alone, and the characters that depend on the secret alone where it stands within a longer text,
 * for each of the three places at which it may begin in a group of three bytes.
 */
function inBase64(secret: string): readonly string[] {
  const bytes = Buffer.from(secret)
  const within = [0, 1, 2].map(at => {
    const encoded = Buffer.concat([Buffer.alloc(at), bytes]).toString('base64')
    return encoded.slice(Math.ceil((at * 8) / 6), Math.floor(((at + bytes.length) * 8) / 6))
  })
  const alone = bytes.toString('base64').replace(/=+$/, '')
  return [alone, ...within].flatMap(form => [form, form.replaceAll('+', '-').replaceAll('/', '_')])
}
