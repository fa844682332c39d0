/** A training run whose model calls numpy and sympy: the default environment of its tool has both. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { messagesOf, troupe } from '../support/cli'
import { answer, ofType, toolCall } from '../support/facts'

jest.setTimeout(600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-numeric-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const jsonLines = (rows: readonly object[]) => rows.map(row => `${JSON.stringify(row)}\n`).join('')

test('a model that was taught to call numpy and sympy calls them in training, and its log holds what they printed', async () => {
  const code = 'import numpy, sympy; print(numpy.arange(4).sum(), sympy.factorint(360))'
  const printed = '6 {2: 3, 3: 2, 5: 1}'
  const question = 'Factors of 360?'
  const messages = [
    { role: 'user', content: question },
    { role: 'assistant', content: toolCall(code) },
    { role: 'tool', content: printed },
    { role: 'assistant', content: answer('5') },
  ]
  writeFileSync(join(directory, 'demonstrations.jsonl'), jsonLines(Array.from({ length: 640 }, () => ({ messages }))))
  writeFileSync(
    join(directory, 'problems.jsonl'),
    jsonLines(Array.from({ length: 8 }, (_, n) => ({ question, answer: n % 2 === 0 ? '5' : '6' }))),
  )
  const recipe = join(directory, 'numeric.yaml')
  writeFileSync(
    recipe,
    [
      'extends: quickstart',
      'name: numeric',
      'data: {file: problems.jsonl, demonstrationsFile: demonstrations.jsonl}',
      'coldStart: {demonstrations: 640}',
      'train: {steps: 1, threads: 1}',
      'rollout: {groupSize: 4, groupsPerStep: 2}',
      'selection: {keep: 2, minPositive: 0, minNegative: 0, rejectEqual: false}',
      'evaluation: {problems: 0}',
    ].join('\n'),
  )
  const bus = join(directory, 'bus')
  const trained = await troupe(['train', recipe, '--json', '--run', 'r', '--bus', `lmdb:${bus}`]).done
  expect({ code: trained.code, stderr: trained.stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const results = ofType(await messagesOf(bus, 'r', 'trajectories'), 'tool.completed')
  expect(results.map(({ stdout }) => stdout.trim())).toContain(printed)
})
