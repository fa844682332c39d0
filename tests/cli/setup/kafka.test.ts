/** `setup --kafka`: what is missing is named, what was fetched is checked, and nothing that failed is taken for done. */
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const root = join(__dirname, '../../..')
let home: string
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'troupe-setup-kafka-'))
  cpSync(join(root, 'cli/setup'), join(home, 'cli/setup'), { recursive: true })
  cpSync(join(root, 'cli/setup.js'), join(home, 'cli/setup.js'))
  writeFileSync(join(home, 'tsconfig.json'), '{}')
  mkdirSync(join(home, 'bin'))
  for (const tool of ['sh', 'cat']) symlinkSync(join('/bin', tool), join(home, 'bin', tool))
  symlinkSync(process.execPath, join(home, 'bin/node'))
})
afterEach(() => rmSync(home, { recursive: true }))

function tool(name: string, script: string): void {
  writeFileSync(join(home, 'bin', name), `#!/bin/sh\n${script}\n`)
  chmodSync(join(home, 'bin', name), 0o755)
}

function setup(env: Record<string, string> = {}): { code: number | null; said: string } {
  const reply = spawnSync(process.execPath, [join(home, 'cli/setup.js'), '--kafka'], {
    encoding: 'utf8',
    env: { PATH: join(home, 'bin'), HOME: home, ...env },
  })
  return { code: reply.status, said: reply.stderr }
}

const java17 = 'echo \'openjdk version "17.0.15"\' >&2'

test('a machine without Java, or with an old one, is told what to install', () => {
  expect(setup()).toMatchObject({
    code: 1,
    said: expect.stringMatching(/java is not on PATH[\s\S]*hint: install Java 17/),
  })
  tool('java', 'echo \'java version "11.0.2"\' >&2')
  expect(setup()).toMatchObject({ code: 1, said: expect.stringContaining('java is version 11; Kafka 4.1.0 needs 17') })
})

test('a machine without Maven is told how to do without', () => {
  tool('java', java17)
  expect(setup()).toMatchObject({ code: 1, said: expect.stringMatching(/needs Maven[\s\S]*TROUPE_KAFKA_LIBS/) })
  expect(setup({ TROUPE_KAFKA_LIBS: home })).toEqual({ code: 0, said: 'setup: up to date\n' })
})

test('without a network the error says so, and the next try begins anew', () => {
  tool('java', java17)
  tool(
    'mvn',
    '[ "$1" = --version ] && exit 0; echo "[ERROR] Could not transfer artifact x: UnknownHostException"; exit 1',
  )
  const { code, said } = setup()
  expect(code).toBe(1)
  expect(said).toMatch(/Kafka: no network[\s\S]*UnknownHostException[\s\S]*hint: nothing could be fetched/)
  expect(readdirSync(join(home, '.cache')).filter(name => /kafka-/.test(name))).toEqual([])
})

test('jars that are missing, strange or changed are refused by name', () => {
  tool('java', java17)
  const script = `for word; do case $word in -DoutputDirectory=*) out=\${word#*=};; esac; done`
  tool(
    'mvn',
    `[ "$1" = --version ] && exit 0; ${script}; echo x > "$out/kafka-clients-4.1.0.jar"; echo x > "$out/evil.jar"`,
  )
  const { code, said } = setup()
  expect(code).toBe(1)
  expect(said).toContain('kafka_2.13-4.1.0.jar is missing')
  expect(said).toContain('evil.jar is not expected')
  expect(said).toContain('kafka-clients-4.1.0.jar has another SHA-256')
  expect(existsSync(join(home, '.cache/kafka-4.1.0'))).toBe(false)
})
