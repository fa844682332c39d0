/** Shapes (field tables for checking) of commands and of telemetry. */
import type { Command } from '../commands'
import { controlOrder, environment, environmentAt, outcome, type ShapesOf, sampling, task } from './parts'

const generate = {
  trajectory: 'string',
  turn: 'int',
  attempt: 'int',
  epoch: 'int',
  engine: { nullable: 'string' },
  seed: 'int',
  sampling: { fields: sampling },
  maxTokens: 'int',
  context: 'i32',
  resumedTokens: 'int',
  promptTokens: 'int',
  boundTokens: 'int',
  order: 'int',
  minVersion: 'int',
} as const

const execute = {
  trajectory: 'string',
  turn: 'int',
  call: 'int',
  attempt: 'int',
  epoch: 'int',
  tool: 'string',
  arguments: { map: 'unknown' },
  timeoutMs: 'number',
  responseChars: 'int',
  cells: { optional: { each: 'string' } },
  environment: { optional: { fields: environmentAt } },
} as const

export const commandShapes = {
  'turn.generate': { version: 1, fields: generate },
  'trajectory.release': { version: 1, fields: { trajectory: 'string', outcome: { optional: outcome } } },
  'turn.assign': {
    version: 1,
    fields: {
      engine: 'string',
      ask: { fields: { type: { oneOf: { 'turn.generate': true } }, ...generate } },
    },
  },
  'trajectory.evict': { version: 1, fields: { engine: 'string', trajectory: 'string' } },
  'tool.execute': { version: 1, fields: execute },
  'tool.cancel': { version: 1, fields: { trajectory: 'string' } },
  'tools.assign': {
    version: 1,
    fields: {
      executor: 'string',
      incarnation: 'string',
      calls: { each: { fields: { type: { oneOf: { 'tool.execute': true } }, ...execute } } },
    },
  },
  'executor.slots': {
    version: 1,
    fields: {
      executor: 'string',
      incarnation: 'string',
      slots: 'int',
      tools: { each: 'string' },
      held: { each: 'string' },
      sandbox: {
        optional: {
          fields: {
            level: { oneOf: { full: true, degraded: true, none: true } },
            ...environment,
          },
        },
      },
    },
  },
  'tools.ended': {
    version: 1,
    fields: { executor: 'string', incarnation: 'string', slots: 'int', calls: { each: 'string' } },
  },
  'tools.abort': { version: 1, fields: { executor: 'string', incarnation: 'string', calls: { each: 'string' } } },
  'executor.refused': { version: 1, fields: { executor: 'string', incarnation: 'string', reason: 'string' } },
  'code.ended': { version: 1, fields: { front: 'string', call: 'string', result: { map: 'unknown' } } },
  'answer.verify': {
    version: 1,
    fields: {
      trajectory: 'string',
      attempt: 'int',
      reward: 'string',
      truth: 'string',
      response: 'string',
      task: { optional: { fields: task } },
      environment: { optional: { fields: environmentAt } },
    },
  },
  'run.control': {
    version: 1,
    fields: { at: 'number', id: 'string', order: controlOrder, reason: 'string' },
  },
  'engine.status': {
    version: 1,
    fields: {
      at: 'number',
      engine: 'string',
      version: 'int',
      kvTokens: 'int',
      referencedTokens: 'int',
      cachedTokens: 'int',
      running: 'int',
      waiting: 'int',
      generatedTokens: 'int',
      prefilledTokens: 'int',
      preemptions: 'int',
      busyMs: 'number',
      cpuMs: 'number',
      maxRssBytes: 'int',
    },
  },
  'ledger.status': {
    version: 1,
    fields: { at: 'number', engine: 'string', driftTokens: 'int', foreignTokens: 'int' },
  },
  'actor.status': {
    version: 1,
    fields: {
      at: 'number',
      actor: 'string',
      kind: 'string',
      state: {
        oneOf: { starting: true, up: true, restarting: true, resting: true, 'given-up': true, stopped: true },
      },
      restarts: 'int',
      reason: { optional: 'string' },
      devices: { optional: { each: 'string' } },
      tree: 'string',
      host: 'string',
      pid: 'int',
    },
  },
} as const satisfies ShapesOf<Command['type']>
