/** Variables that hold a secret, by name or by value, and ordinary ones, which errors and results of tools must keep. */
import { knowVariables, passedOn } from '../../../runtime/secrets/credentials'
import { redactSecrets } from '../../../runtime/secrets/knownSecrets'

const secretNames =
  `OPENAI_API_KEY AWS_SECRET_ACCESS_KEY HF_TOKEN CLIENT_SECRET PGPASSWORD DB_PASSWD SSH_PASSPHRASE npm_config__authToken
  x-api-key Authorization KEY DB_PASS SMTP-PASS API_KEYS AUTH_TOKENS APP_SECRETS ADMIN_PASSWORDS SECRET_KEY_BASE
  OPENAI_API_KEY_1 GITHUB_TOKEN_12 DB_PASSWORD2 NPM_AUTH`.split(/\s+/)

const harmlessNames =
  `MAX_TOKENS TOKENS TOKENIZERS_PARALLELISM MONKEY KEYBOARD BYPASS COMPASS TROUPE_BUS SSH_AUTH_SOCK ENABLE_AUTH
  USE_API_KEY APP_REQUIRE_TOKEN USER LOG_LEVEL TZ PIP_INDEX_URL`.split(/\s+/)

const settings =
  `disabled enabled DISABLED Enable false automatic default required optional 1234567 0.000125 1e-6 -123456`.split(
    /\s+/,
  )

const randomValues = [
  'AKIA4EXAMPLE7Q2LMNOP',
  'ghp_46C7e42F292c6912E7710c838347',
  'sk-proj-Zk3v9QpL1mN8rT5xY2wB',
  '5f4dcc3b5aa765d61d8327deb882cf99',
  '9b2f7c1e-3d4a-4b5c-8e6f-0a1b2c3d4e5f',
]

const harmlessValues = [
  'https://pypi.example.com/simple',
  'https://someuser@pypi.example.com/artifact4f5e6d7c8b9a0f1e',
  'deep-blue-sea',
  'some-user-name',
  'Europe/Berlin',
  'en_US.UTF-8',
  'Qwen2.5-0.5B-Instruct',
  'claude-3-5-sonnet-20241022',
  'python3.11-slim-bookworm',
  'x86_64-unknown-linux-gnu',
  'db1.internal.example.com:5432',
  '1234567890123456',
  'the 2nd word of 16characters1234',
]

const shown = (value: string): string => redactSecrets(`it says ${value}.`)

test.each(secretNames)('the value of a variable or header %s is a secret', name => {
  knowVariables({ [name]: `value-of-${name}` })
  expect(shown(`value-of-${name}`)).toBe('it says [redacted].')
})

test.each(harmlessNames)('the value of the variable %s is none', name => {
  knowVariables({ [name]: `plain-${name}` })
  expect(shown(`plain-${name}`)).toBe(`it says plain-${name}.`)
})

test.each(settings)('%s is a setting, and no secret, whatever the name of its variable is', value => {
  for (const name of ['ENABLE_AUTH', 'PROXY_AUTH', 'API_KEY', 'MAX_AUTH_TOKENS']) knowVariables({ [name]: value })
  expect(shown(value)).toBe(`it says ${value}.`)
})

test('each secret of a list is known; words of a JSON document are not', () => {
  knowVariables({ API_KEYS: 'first-of-two, second-of-two', GOOGLE_SECRETS: '{"type": "service_account"}' })
  expect(shown('second-of-two service_account')).toBe('it says [redacted] service_account.')
})

test.each(randomValues)('%s, which a program gets by name, looks random, and is a secret', value => {
  expect(passedOn(['BANNER', 'ABSENT'], { BANNER: value })).toEqual({ BANNER: value, ABSENT: undefined })
  expect(shown(value)).toBe('it says [redacted].')
})

test.each(harmlessValues)('%s, which a program gets by name, is none', value => {
  passedOn(['BANNER'], { BANNER: value })
  expect(shown(value)).toBe(`it says ${value}.`)
})
