/** A secret is found in each encoding in which a server, a library or a log may write it. */
import { knowSecret, redactSecrets } from '../../../runtime/secrets/knownSecrets'

const secret = 'Zürich "<pass/wörd>&\'9+x='
beforeAll(() => void knowSecret(secret))

const json = JSON.stringify(secret).slice(1, -1)
const percent = encodeURIComponent(secret)
const html = (apostrophe: string) =>
  secret
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", apostrophe)

test.each([
  ['as it is', secret],
  ['JSON', json],
  ['JSON within JSON', JSON.stringify(json).slice(1, -1)],
  ["Python's JSON", json.replaceAll('ü', '\\u00fc').replaceAll('ö', '\\u00f6')],
  ["PHP's JSON", json.replaceAll('/', '\\/')],
  ['percent-encoding', percent],
  ['percent-encoding in lower case', percent.replace(/%../g, one => one.toLowerCase())],
  ["percent-encoding of Python's quote", percent.replaceAll('%2F', '/')],
  ["percent-encoding of a form's field", new URLSearchParams([['k', secret]]).toString().slice(2)],
  ['HTML', html('&#39;')],
  ["Python's HTML", html('&#x27;')],
  ['base64', Buffer.from(secret).toString('base64')],
  ['base64url', Buffer.from(secret).toString('base64url')],
])('%s', (_title, form) => {
  expect(redactSecrets(`<${form}>`)).toMatch(/^<\[redacted\]=*>$/)
})

test.each(['', 'u', 'us', 'user:', 'Bearer '])('base64 of a text in which the secret follows %j', before => {
  const encoded = Buffer.from(`${before}${secret}, and more`).toString('base64')
  const shown = redactSecrets(encoded)
  expect(shown).toContain('[redacted]')
  // At most the characters that the secret shares with its neighbours are left.
  const left = Buffer.from(shown.slice(0, shown.indexOf('[')), 'base64').toString()
  expect(left.length - before.length).toBeLessThanOrEqual(1)
})
