/** Paths in facts: relative where they lie beside the run, and never back to the place where an old log was recorded. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import * as fc from 'fast-check'
import { pathToday, recordedPath } from '../../runtime/runPaths'

const directory = mkdtempSync(join(tmpdir(), 'troupe-paths-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const name = fc.stringMatching(/^[a-z][a-z0-9 .%-]{0,6}$/).filter(text => text.trim() !== '' && !text.endsWith('.'))

test('a path below the run is recorded without its place, and is found below the place that the run has later', () =>
  fc.assert(
    fc.property(name, name, fc.array(name, { maxLength: 3 }), (home, run, below) => {
      const path = (root: string) => join(root, 'weights', ...below)
      const text = recordedPath(`/data/${home}/runs/${run}`, path(`/data/${home}/runs/${run}`))
      expect(text).toBe(['weights', ...below].join('/'))
      expect(pathToday(`/elsewhere/runs/${run}`, text)).toBe(path(`/elsewhere/runs/${run}`))
    }),
  ))

test('weights of a parent run are recorded relative to the fork, a model outside of the runs with its whole path', () => {
  expect(recordedPath('/bus/runs/fork', '/bus/runs/parent/weights/v000001')).toBe('../parent/weights/v000001')
  expect(pathToday('/new/runs/fork', '../parent/weights/v000001')).toBe('/new/runs/parent/weights/v000001')
  for (const outside of ['/bus/model', '/bus/runs-of-others/m', '/m']) {
    expect(recordedPath('/bus/runs/fork', outside)).toBe(pathToFileURL(outside).href)
    expect(pathToday('/new/runs/fork', pathToFileURL(outside).href)).toBe(outside)
  }
})

test('an absolute path of an old log leads to where the log lies today, even while the old directory exists', () => {
  const old = join(directory, 'old/runs/r/weights/v000001-e7')
  mkdirSync(old, { recursive: true })
  const today = join(directory, 'copy/runs/r')
  expect(pathToday(today, pathToFileURL(old).href)).toBe(join(today, 'weights/v000001-e7'))
  expect(pathToday(today, old)).toBe(join(today, 'weights/v000001-e7'))
  // The file names of a run that is itself called `runs` do not mislead it.
  expect(pathToday('/b/runs/runs', 'file:///a/runs/runs/model')).toBe('/b/runs/runs/model')
})

test('the absolute path of a parent in an old log leads beside the fork where the parent was copied too, else stays', () => {
  const parent = 'file:///gone/runs/parent/weights/v000002'
  const fork = join(directory, 'forks/runs/fork')
  expect(pathToday(fork, parent)).toBe('/gone/runs/parent/weights/v000002')
  mkdirSync(join(directory, 'forks/runs/parent/weights/v000002'), { recursive: true })
  expect(pathToday(fork, parent)).toBe(join(directory, 'forks/runs/parent/weights/v000002'))
})

test('a model of another run is used where it was recorded, whatever a run of that name beside this one holds', () => {
  const model = join(directory, 'A/runs/sft/weights/v000010')
  const beside = join(directory, 'B/runs/sft/weights/v000010')
  const run = join(directory, 'B/runs/rl')
  for (const made of [model, beside, run]) mkdirSync(made, { recursive: true })
  for (const recorded of [recordedPath(run, model), model]) expect(pathToday(run, recorded)).toBe(model)
  // After its own home is gone, the model is looked up beside the run.
  rmSync(join(directory, 'A'), { recursive: true })
  for (const recorded of [pathToFileURL(model).href, model]) expect(pathToday(run, recorded)).toBe(beside)
})
