/** Keys that Troupe makes are recognised without being learned, and push no other secret out. */
import { randomUUID } from 'node:crypto'
import { asError } from '../../../runtime/errors'
import { generatedKey } from '../../../runtime/secrets/generatedKey'
import { knowSecret, longSecret, redactSecrets } from '../../../runtime/secrets/knownSecrets'

test('a key that was never learned is removed, also from data, and from an error', () => {
  const key = generatedKey(randomUUID())
  expect(redactSecrets(`401 for Bearer ${key}, {"key":"${key}"}`)).toBe(
    '401 for Bearer [redacted], {"key":"[redacted]"}',
  )
  expect(redactSecrets(`?k=${encodeURIComponent(key)}`, longSecret)).toBe('?k=[redacted]')
  expect(asError(new Error(`401 for ${key}`)).message).toBe('401 for [redacted]')
})

test.each(['', 'u', 'us', 'user:', 'Bearer '])('base64 of a text in which a key follows %j is removed', before => {
  for (const [after, encoding] of [
    ['', 'base64'],
    ['', 'base64url'],
    [', and more', 'base64'],
  ] as const) {
    const key = generatedKey(randomUUID())
    const shown = redactSecrets(Buffer.from(before + key + after).toString(encoding))
    expect(shown).toContain('[redacted]')
    // At most the characters that the key shares with its neighbours are left.
    expect(Buffer.from(shown.slice(0, shown.indexOf('[')), 'base64').length).toBeLessThanOrEqual(before.length + 1)
    expect(shown.replace('[redacted]', '').length).toBeLessThanOrEqual(((before.length + after.length + 2) * 4) / 3 + 4)
  }
})

test.each([
  'troupe-policy-0.1.0 in /tmp/troupe-agent-4f0c-2a-11-0123456789-AbCdEf',
  Buffer.from('troupe-control stops the run after its next step').toString('base64'),
  `run-${randomUUID()}`,
])('%s is no key', text => expect(redactSecrets(text)).toBe(text))

test('a key is removed though a short secret occurs in it', () => {
  const key = generatedKey('01234567-89ab-4cde-8f01-23456789abcd')
  knowSecret('456789')
  expect(redactSecrets(key)).toBe('[redacted]')
})
