/** Shapes (field tables for checking) of the facts of the `runs` topic. */
import type { RunFact } from '../facts'
import { controlOrder, environment, metrics, type ShapesOf } from './parts'

const toolEnvironment = { optional: { fields: environment } } as const

export const runShapes = {
  'run.started': {
    version: 1,
    fields: {
      at: 'number',
      run: 'string',
      recipe: { map: 'unknown' },
      recipeDigest: 'string',
      codeDigest: 'string',
      tokenizerDigest: 'string',
      seed: 'int',
      versions: { map: 'string' },
      partitions: { map: 'int' },
      toolEnvironment,
      source: { optional: 'string' },
    },
  },
  'run.resumed': {
    version: 1,
    fields: {
      ...{ at: 'number', run: 'string', recipeDigest: 'string', codeDigest: 'string', tokenizerDigest: 'string' },
      toolEnvironment,
    },
  },
  'run.finished': {
    version: 1,
    fields: {
      at: 'number',
      run: 'string',
      outcome: { oneOf: { done: true, stopped: true, failed: true } },
      reason: 'string',
      steps: 'int',
      summary: { map: 'unknown' },
      learnerEpoch: { optional: 'int' },
    },
  },
  'engine.joined': {
    version: 1,
    fields: {
      at: 'number',
      engine: 'string',
      kind: 'string',
      model: 'string',
      kvTokens: 'int',
      blockTokens: 'int',
      maxSequences: 'int',
      contextTokens: 'int',
      prefixSharing: 'boolean',
      prioritySign: 'int',
    },
  },
  'engine.left': {
    version: 1,
    fields: { at: 'number', engine: 'string', reason: 'string', retryAfterMs: { optional: 'number' } },
  },
  'engine.slept': { version: 1, fields: { at: 'number', engine: 'string' } },
  'engine.woke': { version: 1, fields: { at: 'number', engine: 'string' } },
  'weights.applied': { version: 1, fields: { at: 'number', engine: 'string', version: 'int', digest: 'string' } },
  'evaluation.completed': {
    version: 1,
    fields: {
      at: 'number',
      name: 'string',
      step: 'int',
      version: 'int',
      passAt1: 'number',
      standardError: { nullable: 'number' },
      n: 'int',
      samples: 'int',
      metrics,
      asked: { optional: { fields: { problems: 'int', samples: 'int' } } },
      learnerEpoch: { optional: 'int' },
    },
  },
  'curriculum.advanced': {
    version: 1,
    fields: {
      at: 'number',
      step: 'int',
      purpose: { oneOf: { train: true, eval: true, measure: true } },
      groups: { each: 'string' },
      cursor: 'int',
      order: 'int',
      begins: { optional: { each: 'int' } },
      learnerEpoch: { optional: 'int' },
    },
  },
  'draws.claimed': { version: 1, fields: { at: 'number', owner: 'string', learnerEpoch: 'int' } },
  'tasks.measured': {
    version: 1,
    fields: {
      at: 'number',
      stage: 'string',
      index: 'int',
      from: 'int',
      samples: 'int',
      solved: { each: 'int' },
      learnerEpoch: { optional: 'int' },
    },
  },
  'step.tallied': { version: 1, fields: { at: 'number', step: 'int', metrics, learnerEpoch: { optional: 'int' } } },
  'trajectory.forked': {
    version: 1,
    fields: { at: 'number', parent: 'string', child: 'string', turn: 'int', parentRun: { optional: 'string' } },
  },
  'record.refused': { version: 1, fields: { at: 'number', origin: 'string', error: 'string' } },
  'control.obeyed': {
    version: 1,
    fields: {
      at: 'number',
      id: 'string',
      offset: 'int',
      order: controlOrder,
      reason: 'string',
      learnerEpoch: { optional: 'int' },
    },
  },
  'alarm.raised': {
    version: 1,
    fields: { at: 'number', alarm: 'string', message: 'string', learnerEpoch: { optional: 'int' } },
  },
} as const satisfies ShapesOf<RunFact['type']>
