/** Credentials that enter by variables, headers and addresses are known before a program or a server can repeat them. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { knowAddress, knowNetrc, knowVariables, passedOn } from '../../../runtime/secrets/credentials'
import { knowSecret, redactSecrets } from '../../../runtime/secrets/knownSecrets'
import { mergedInput } from '../../../runtime/settings/resolveConfig'

const directory = mkdtempSync(join(tmpdir(), 'troupe-credentials-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

test('the path of an existing file is no secret, whatever its variable is called, nor is a list of paths', () => {
  const file = join(directory, 'credentials.json')
  writeFileSync(file, '{}')
  knowVariables({ GOOGLE_APPLICATION_CREDENTIALS: file })
  passedOn(['SEARCHED'], { SEARCHED: `${directory}:/nowhere` })
  expect(redactSecrets(`${file} ${directory}`)).toBe(`${file} ${directory}`)
})

test.each([
  ['a user and password', 'http://me:pass%40word-1@host/x', ['me:pass%40word-1@', 'pass%40word-1', 'pass@word-1']],
  ['a token in place of a user', 'https://ghp_16C7e42F292c6912E7@host', ['ghp_16C7e42F292c6912E7']],
  ['a token as user with a password', 'https://ghp_26C7e42F292c6912E7:x-oauth@host', ['ghp_26C7e42F292c6912E7']],
  ['a parameter', 'https://host/?a=plainvalue&access_token=parameter%2B3', ['parameter%2B3', 'parameter+3']],
])('%s in an address is known, also by another variable', (_title, address, secrets) => {
  knowVariables({ HTTPS_PROXY: address })
  for (const secret of secrets) expect(redactSecrets(`<${secret}>`)).toBe('<[redacted]>')
  expect(redactSecrets(address)).toMatch(/host/)
  expect(redactSecrets('plainvalue')).toBe('plainvalue')
})

test('a password that is the name of the user, the host or the protocol is only known together with the user', () => {
  knowVariables({ DATABASE_URL: 'postgres://postgres:postgres@db', ENABLE_AUTH: 'disabled' })
  knowAddress('amqp://someuser:rabbitmq@rabbitmq:5672')
  expect(redactSecrets('postgres is disabled; someuser, rabbitmq')).toBe('postgres is disabled; someuser, rabbitmq')
  expect(redactSecrets('no answer of postgres://postgres:postgres@db')).toBe('no answer of postgres://[redacted]db')
})

test('credentials in an address of a recipe or of the command line are known, those of an address in prose are not', () => {
  mergedInput({
    what: 'r',
    recipe: { engines: [{ url: 'http://me:recipe-word-1@h' }], command: ['run', '--db=redis://:recipe-word-2@h'] },
    below: [
      {
        origin: 'extends x',
        data: { prompt: 'Log in to http://me:recipe-word-3@h or https://x/?token=recipe-word-4' },
      },
    ],
    overrides: ['bus=kafka://me:recipe-word-5@h'],
  })
  expect(redactSecrets([1, 2, 3, 4, 5].map(k => `recipe-word-${k}`).join())).toBe(
    '[redacted],[redacted],recipe-word-3,recipe-word-4,[redacted]',
  )
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

test('more than a thousand secrets of addresses that servers gave push each other out, and no other secret', () => {
  knowSecret('of-the-environment')
  knowAddress('http://me:given-twice@host', { isPassing: true })
  knowVariables({ HF_TOKEN: 'given-twice' })
  const addressOf = (k: number) => `http://host/?signature=generated-${k}-end`
  for (let k = 0; k < 1500; k++) {
    knowAddress(addressOf(k), { isPassing: true })
    knowSecret('of-the-environment', { isPassing: true })
    if (k % 450 === 0) knowAddress(addressOf(0), { isPassing: true })
  }
  expect(redactSecrets('of-the-environment given-twice')).toBe('[redacted] [redacted]')
  const shown = [0, 1, 400, 600, 1499].map(k => redactSecrets(`generated-${k}-end`))
  expect(shown).toEqual(['[redacted]', 'generated-1-end', 'generated-400-end', '[redacted]', '[redacted]'])
})

test('1,500 secrets of the environment are all known', () => {
  for (let k = 0; k < 1500; k++) knowVariables({ [`SOME_TOKEN_${k}`]: `hf_of-the-environment-${k}-end` })
  expect(redactSecrets('hf_of-the-environment-0-end')).toBe('[redacted]')
})

test('a text without an address is not searched for one, and an address without credentials teaches nothing', () => {
  for (const text of ['me:words@host', 'http://host/users/@person-7', '"http://host","person-7@host"'])
    knowAddress(text)
  expect(redactSecrets('words host person-7')).toBe('words host person-7')
})
