/** Credentials that enter by variables, headers and addresses are known before a program or a server can repeat them. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { knowAddress, knowNetrc, knowVariables, passedOn } from '../../../runtime/secrets/credentials'
import { forgetSecret, knowSecret, redactSecrets } from '../../../runtime/secrets/knownSecrets'

const directory = mkdtempSync(join(tmpdir(), 'troupe-credentials-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

test.each([
  'OPENAI_API_KEY',
  'AWS_SECRET_ACCESS_KEY',
  'HF_TOKEN',
  'CLIENT_SECRET',
  'PGPASSWORD',
  'DB_PASSWD',
  'SSH_PASSPHRASE',
  'npm_config__authToken',
  'x-api-key',
  'Authorization',
  'KEY',
])('the value of a variable or header %s is a secret', name => {
  const value = `value-of-${name}`
  knowVariables({ [name]: value })
  expect(redactSecrets(`it says ${value}`)).toBe('it says [redacted]')
})

test.each(['MAX_TOKENS', 'TOKENIZERS_PARALLELISM', 'MONKEY', 'KEYBOARD', 'TROUPE_BUS', 'SSH_AUTH_SOCK'])(
  'the value of the variable %s is none',
  name => {
    knowVariables({ [name]: `plain-${name}` })
    expect(redactSecrets(`it says plain-${name}`)).toBe(`it says plain-${name}`)
  },
)

test('the path of an existing file is no secret, whatever its variable is called, nor is a list of paths', () => {
  const file = join(directory, 'credentials.json')
  writeFileSync(file, '{}')
  knowVariables({ GOOGLE_APPLICATION_CREDENTIALS: file })
  passedOn(['SEARCHED'], { SEARCHED: `${directory}:/nowhere` })
  expect(redactSecrets(`${file} ${directory}`)).toBe(`${file} ${directory}`)
})

test('a value that a program gets by name is a secret, whatever its name; a short one is not', () => {
  expect(passedOn(['BANNER', 'FLAG', 'ABSENT'], { BANNER: 'deep-blue-sea', FLAG: 'on' })).toEqual({
    BANNER: 'deep-blue-sea',
    FLAG: 'on',
    ABSENT: undefined,
  })
  expect(redactSecrets('on the deep-blue-sea')).toBe('on the [redacted]')
})

test.each([
  ['a user and password', 'http://me:pass%40word-1@host/x', ['pass%40word-1', 'pass@word-1', 'me:pass%40word-1']],
  ['a token in place of a user', 'https://ghp-token-2@host', ['ghp-token-2']],
  ['a parameter', 'https://host/?a=plainvalue&access_token=parameter%2B3', ['parameter%2B3', 'parameter+3']],
])('%s in an address is known, also by another variable', (_title, address, secrets) => {
  knowVariables({ HTTPS_PROXY: address })
  for (const secret of secrets) expect(redactSecrets(`<${secret}>`)).toBe('<[redacted]>')
  expect(redactSecrets(address)).toMatch(/host/)
  expect(redactSecrets('plainvalue')).toBe('plainvalue')
})

test('Basic credentials are known as user and password, as the password alone, and as they are sent', () => {
  const basic = Buffer.from('someone:password-4').toString('base64')
  knowSecret(`Basic ${basic}`)
  for (const text of [basic, 'someone:password-4', 'password-4'])
    expect(redactSecrets(text)).toMatch(/^\[redacted\]=*$/)
})

test('headers for OTLP are known as they stand and decoded', () => {
  knowVariables({ OTEL_EXPORTER_OTLP_HEADERS: 'x-one=first%20five,x-two=second-five' })
  expect(redactSecrets('first%20five, first five, second-five')).toBe('[redacted], [redacted], [redacted]')
})

test('passwords of a netrc file are known; no file has none', () => {
  const file = join(directory, 'netrc')
  writeFileSync(file, 'machine api.wandb.ai\n  login user\n  password netrc-password-6\n')
  knowNetrc(file)
  knowNetrc(join(directory, 'absent'))
  expect(redactSecrets('netrc-password-6')).toBe('[redacted]')
})

test('each line of a key in PEM format is known, since a log shows it line by line', () => {
  const line = 'MIIEvQIBADANBgkqhkiG9w0BAQEFAASC'
  knowSecret(`-----BEGIN PRIVATE KEY-----\n${line}\n-----END PRIVATE KEY-----\n`)
  expect(redactSecrets(`read ${line}`)).toBe('read [redacted]')
  expect(redactSecrets('-----BEGIN PRIVATE KEY-----')).toBe('-----BEGIN PRIVATE KEY-----')
})

test('a secret that is learned again outlives a thousand others, and a forgotten one is shown', () => {
  knowSecret('used-again-and-again')
  for (let k = 0; k < 1500; k++) {
    knowSecret(`generated-secret-${k}-end`)
    if (k % 500 === 0) knowSecret('used-again-and-again')
  }
  expect(redactSecrets('used-again-and-again generated-secret-1499-end')).toBe('[redacted] [redacted]')
  forgetSecret('generated-secret-1499-end')
  expect(redactSecrets('generated-secret-1499-end')).toBe('generated-secret-1499-end')
})

test('a text without an address is not searched for one, and an address without credentials teaches nothing', () => {
  for (const text of ['me:words@host', 'http://host/users/@person-7', '"http://host","person-7@host"'])
    knowAddress(text)
  expect(redactSecrets('words host person-7')).toBe('words host person-7')
})
