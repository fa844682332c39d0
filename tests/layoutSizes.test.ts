/**
 * The house's rules on sizes: at most 25 files beside each other in a folder of production code, and at most 320 lines
 * in a file unless its header says why. The rules stand in runner/sizes.js; here they are also met by planted violations.
 */
import { join } from 'node:path'

interface Sizes {
  productionFiles(root: string): Map<string, string>
  sizeViolations(files: ReadonlyMap<string, string>): readonly string[]
}
const { productionFiles, sizeViolations } = require('./runner/sizes') as Sizes

const lines = (count: number) => 'x\n'.repeat(count)
const beside = (count: number, folder: string) =>
  Object.fromEntries(Array.from({ length: count }, (_, k) => [`${folder}/file${k}.ts`, '']))
const violations = (files: Record<string, string>) => sizeViolations(new Map(Object.entries(files)))

test('no folder holds more than 25 files beside each other; no file exceeds 320 lines without a reason in its header', () => {
  const files = productionFiles(join(__dirname, '..'))
  for (const file of [
    'messages/ids.ts',
    'policy/troupe_policy/server.py',
    'sandbox/zygote/shim/shim.c',
    'cli/setup.js',
  ]) {
    expect(files.get(file)).toBeTruthy()
  }
  expect([...files.keys()].filter(file => /^(tests|bench|examples|docs|policy\/tests)\//.test(file))).toEqual([])
  expect(sizeViolations(files)).toEqual([])
})

test('25 files beside each other are allowed, 26 are not, and folders below are counted by themselves', () => {
  expect(violations({ ...beside(25, 'actors/run'), ...beside(25, 'actors/run/roles') })).toEqual([])
  expect(violations(beside(26, 'actors/run'))).toEqual([
    expect.stringContaining('actors/run: 26 files beside each other'),
  ])
})

test('320 lines are allowed, 321 are not, in any of our languages', () => {
  for (const end of ['ts', 'js', 'py', 'c', 'h']) {
    expect(violations({ [`runtime/a.${end}`]: lines(320) })).toEqual([])
    expect(violations({ [`runtime/a.${end}`]: lines(321) })).toEqual([
      expect.stringContaining(`runtime/a.${end}: 321 lines`),
    ])
  }
})

test.each([
  ['a comment', `/**\n * A cell.\n *\n * It is longer than 320 lines because one\n * state machine is in it.\n */\n`],
  [
    'a comment whose reason is broken over two lines',
    `/*\n * A cell, longer than 320\n * lines because it is one.\n */\n`,
  ],
  ['a docstring', '"""An engine, longer than 320 lines because it is one.\n"""\n'],
  ['a comment below the line for the shell', '#!/usr/bin/env node\n/** Longer than 320 lines because it is one. */\n'],
])('a reason in the header excuses a long file: %s', (_title, header) => {
  expect(violations({ 'runtime/a.ts': header + lines(400) })).toEqual([])
})

test.each([
  ['without a reason', '/** It is longer than 320 lines because */\n'],
  ['below the header', '/** A cell. */\nconst a = 1 // longer than 320 lines because of b\n'],
  ['in a string', "const a = 'longer than 320 lines because b'\n"],
])('words %s excuse nothing', (_title, start) => {
  expect(violations({ 'runtime/a.ts': start + lines(400) })).toHaveLength(1)
})
