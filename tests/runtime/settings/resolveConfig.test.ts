import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'
import { resolveSecret, secretSchema } from '../../../runtime/secrets/secretReference'
import { applyOverrides, parseConfig, resolveConfig } from '../../../runtime/settings/resolveConfig'
import { failure } from '../../support/refusal'

const schema = z.strictObject({
  name: z.string(),
  bus: z.string().default('lmdb:.troupe'),
  learner: z.strictObject({
    learningRate: z.number().positive().default(1e-5),
    clipHigh: z.number().default(0.28),
  }),
  stages: z.array(z.strictObject({ steps: z.number().int() })).default([]),
  engine: z
    .discriminatedUnion('kind', [
      z.strictObject({ kind: z.literal('local'), kvTokens: z.number() }),
      z.strictObject({ kind: z.literal('vllm'), url: z.string() }),
    ])
    .default({ kind: 'local', kvTokens: 4096 }),
  plan: z.preprocess(
    plan => plan ?? undefined,
    z
      .discriminatedUnion('kind', [
        z.strictObject({ kind: z.literal('split'), trainer: z.number().optional() }),
        z.strictObject({ kind: z.literal('colocated'), sleepLevel: z.union([z.literal(1), z.literal(2)]).default(1) }),
      ])
      .optional(),
  ),
  tokens: z.union([z.number(), z.strictObject({ max: z.number() })]).optional(),
  token: secretSchema.optional(),
})
const minimal = { name: 'q', learner: {} }

test('every problem is reported at once, each with its path', () => {
  const error = failure(() =>
    parseConfig(schema, { learner: { learningRate: 'fast' }, stages: [{ steps: 1 }, { steps: 1.5 }] }, 'recipe q'),
  )
  expect(error.code).toBe('config.invalid')
  expect(error.message).toMatch(/^recipe q: 3 problems/)
  expect(error.message).toContain('name: expected string')
  expect(error.message).toContain('learner.learningRate: expected number')
  expect(error.message).toContain('stages.1.steps: expected int')
})

test.each([
  [{ ...minimal, nmae: 1 }, "nmae: unknown field; did you mean 'name'?"],
  [{ ...minimal, learner: { learningrate: 1 } }, "did you mean 'learner.learningRate'?"],
  [{ ...minimal, stages: [{ step: 1, steps: 2 }] }, "stages.0.step: unknown field; did you mean 'stages.0.steps'?"],
  [{ ...minimal, engine: { kind: 'local', kvTokens: 1, kvTokns: 1 } }, "did you mean 'engine.kvTokens'?"],
  [{ ...minimal, tokens: { max: 1, mx: 2 } }, "did you mean 'tokens.max'?"],
  [{ ...minimal, clipHigh: 1 }, "did you mean 'learner.clipHigh'?"],
  [{ ...minimal, zzzzzz: 1 }, 'known here: '],
])('an unknown field names the nearest known one: %j', (input, expected) => {
  expect(failure(() => parseConfig(schema, input, 'x')).message).toContain(expected)
})

test.each([
  [{ plan: { kind: 'colocated', sleepLevel: 3 } }, 'plan.sleepLevel: expected 1 or 2'],
  [{ tokens: 'many' }, 'tokens: expected number or object'],
  [{ plan: { kind: 'split', trainr: 1 } }, "plan.trainr: unknown field; did you mean 'plan.trainer'?"],
  [
    { plan: { kind: 'split', sleepLevel: 2 } },
    "plan.sleepLevel: unknown field of this kind of plan; to change the kind, replace the object: --set 'plan={kind: …}'",
  ],
])(
  'a union names all that it expects, and a field of another kind is told from an unknown one: %j',
  (input, expected) => {
    expect(failure(() => parseConfig(schema, { ...minimal, ...input }, 'x')).message).toContain(expected)
  },
)

test('--set reads numbers, booleans, null, lists and text, and does not touch what it was given', () => {
  const input = Object.freeze({
    a: Object.freeze({ b: 1, kept: true }),
    list: Object.freeze([Object.freeze({ n: 1 })]),
  })
  const assignments = ['a.b=1e-6', 'a.c=true', 'a.d=null', 'a.e=[1, "x"]', 'a.f=vllm: fast', 'list.0.n=2', 'list.1.n=3']
  expect(applyOverrides(input, [...assignments, 'g="7"', 'h=a=b', 'i=', 'j=12345678901234567890', 'k=@x'])).toEqual({
    a: { b: 1e-6, c: true, d: null, e: [1, 'x'], f: 'vllm: fast', kept: true },
    list: [{ n: 2 }, { n: 3 }],
    g: '7',
    h: 'a=b',
    i: '',
    j: '12345678901234567890',
    k: '@x',
  })
  expect(input.a.b).toBe(1)
})

test.each(['a', '=1', 'a..b=1', 'a.b.c=1', 'list.5=1', 'list.x=1', '__proto__.x=1', 'a.constructor.x=1'])(
  'an assignment that reaches nothing is refused: %s',
  text => {
    expect(failure(() => applyOverrides({ a: { b: 1 }, list: [1] }, [text])).code).toBe('config.invalid')
    expect(({} as Record<string, unknown>).x).toBeUndefined()
  },
)

test('each leaf knows whether it is a default, of the recipe, of the environment or of --set, and --set wins', () => {
  const { value, origins } = resolveConfig(schema, {
    what: 'recipe q',
    recipe: { name: 'q', bus: 'memory:', learner: { clipHigh: 0.3 }, stages: [{ steps: 1 }, { steps: 2 }] },
    variables: { bus: 'TROUPE_BUS', name: 'TROUPE_NAME' },
    env: { TROUPE_BUS: 'kafka://localhost:9092', TROUPE_NAME: 'e' },
    overrides: ['stages.1.steps=9', 'name=s'],
  })
  expect(value.bus).toBe('kafka://localhost:9092')
  expect(value.stages).toEqual([{ steps: 1 }, { steps: 9 }])
  expect(Object.fromEntries(origins)).toEqual({
    name: '--set',
    bus: 'env',
    'learner.learningRate': 'default',
    'learner.clipHigh': 'recipe',
    'stages.0.steps': 'recipe',
    'stages.1.steps': '--set',
    'engine.kind': 'default',
    'engine.kvTokens': 'default',
  })
})

test('defaults inside an object that --set made are still defaults', () => {
  const { origins } = resolveConfig(schema, {
    what: 'x',
    recipe: { name: 'q' },
    overrides: ['learner={"clipHigh": 0.3}'],
  })
  expect(origins.get('learner.clipHigh')).toBe('--set')
  expect(origins.get('learner.learningRate')).toBe('default')
})

test('a secret is a reference: its value is refused in configuration and never repeated in the error', () => {
  const error = failure(() => parseConfig(schema, { ...minimal, token: 'hunter2' }, 'x'))
  expect(error.message).toContain('token: expected a reference to the secret, {env: NAME} or {file: PATH}')
  expect(`${error.message} ${error.stack} ${JSON.stringify(error)} ${String(error.cause)}`).not.toContain('hunter2')
})

test('a secret is read where it is used, and a missing one names the reference', () => {
  const folder = mkdtempSync(join(tmpdir(), 'troupe-secret-'))
  try {
    const file = join(folder, 'token')
    writeFileSync(file, 's3cret\n')
    expect(resolveSecret({ file })).toBe('s3cret')
    expect(resolveSecret({ env: 'T' }, { T: 'x' })).toBe('x')
    writeFileSync(file, '')
    expect(failure(() => resolveSecret({ file })).code).toBe('config.no_secret')
    expect(failure(() => resolveSecret({ env: 'NOT_THERE' }, {})).message).toContain('NOT_THERE')
  } finally {
    rmSync(folder, { recursive: true })
  }
})
