/** Set-up's npm packages, installed by a real npm from archives: those of a run alone, then all of them. */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

interface Step {
  isDone(): boolean
  run(): Promise<void>
}
const { step } = require('../../../cli/setup/npm') as {
  step(where: object, options?: { omitDev?: boolean }): Step
}
jest.setTimeout(60_000)

let root: string
const where = () => ({ root, logs: join(root, '.cache'), home: root })
const npm = (...args: string[]) => expect(spawnSync('npm', [...args, '--offline'], { cwd: root }).status).toBe(0)
const has = (name: string) => existsSync(join(root, 'node_modules', name))

/** A checkout with the dependency `needed`, the development dependency `tested`, and a lock. */
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'troupe-npm-'))
  for (const name of ['needed', 'tested']) {
    mkdirSync(join(root, name))
    writeFileSync(join(root, name, 'package.json'), JSON.stringify({ name, version: '1.0.0' }))
    npm('pack', `./${name}`)
  }
  const dependencies = { needed: 'file:needed-1.0.0.tgz' }
  writeFileSync(
    join(root, 'package.json'),
    JSON.stringify({
      name: 'checkout',
      version: '1.0.0',
      dependencies,
      devDependencies: { tested: 'file:tested-1.0.0.tgz' },
    }),
  )
  npm('install', '--package-lock-only')
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

test('a run gets no development packages; they are added later, and what was there stays', async () => {
  const [ofRun, all] = [step(where(), { omitDev: true }), step(where())]
  expect(ofRun.isDone()).toBe(false)
  await ofRun.run()
  expect([has('needed'), has('tested')]).toEqual([true, false])
  expect([ofRun.isDone(), all.isDone()]).toEqual([true, false])

  // `npm ci` would remove this file, as it removes the packages of a run that is under way.
  writeFileSync(join(root, 'node_modules/needed/in-use'), '')
  const locked = readFileSync(join(root, 'package-lock.json'))
  await all.run()
  expect([has('needed'), has('tested'), has('needed/in-use')]).toEqual([true, true, true])
  expect([ofRun.isDone(), all.isDone()]).toEqual([true, true])
  expect(readFileSync(join(root, 'package-lock.json'))).toEqual(locked)

  // A checkout that has development packages keeps them when the lock changes and `npm start` installs the new ones.
  rmSync(join(root, 'node_modules/tested'), { recursive: true })
  rmSync(join(root, 'node_modules/.package-lock.json'))
  writeFileSync(join(root, 'package-lock.json'), `${locked}\n`)
  const later = step(where(), { omitDev: true })
  expect(later.isDone()).toBe(false)
  await later.run()
  expect(has('tested')).toBe(true)
})

test('an install by hand counts, whole or without development packages', () => {
  npm('ci', '--omit=dev')
  expect([step(where()).isDone(), step(where(), { omitDev: true }).isDone()]).toEqual([false, true])
  npm('ci')
  expect([step(where()).isDone(), step(where(), { omitDev: true }).isDone()]).toEqual([true, true])
})
