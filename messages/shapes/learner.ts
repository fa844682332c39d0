/** Shapes (field tables for checking) of the facts of the `learner` topic. */
import type { LearnerFact } from '../facts'
import { metrics, type ShapesOf } from './parts'

export const learnerShapes = {
  'learner.claimed': { version: 1, fields: { at: 'number', owner: 'string' } },
  'step.started': {
    version: 1,
    fields: {
      at: 'number',
      step: 'int',
      epoch: 'int',
      baseVersion: 'int',
      baseCheckpoint: 'string',
      trajectories: { each: 'string' },
    },
  },
  'step.completed': { version: 1, fields: { at: 'number', step: 'int', epoch: 'int', version: 'int', metrics } },
  'step.rejected': { version: 1, fields: { at: 'number', step: 'int', epoch: 'int', reason: 'string', metrics } },
  'weights.published': {
    version: 1,
    fields: {
      at: 'number',
      version: 'int',
      step: 'int',
      url: 'string',
      served: { optional: 'string' },
      digest: 'string',
      manifest: { optional: 'string' },
      bytes: 'int',
      dtype: { optional: 'string' },
      adapter: { optional: { fields: { digest: 'string', bytes: 'int', config: { optional: 'string' } } } },
      epoch: { optional: 'int' },
    },
  },
  'checkpoint.saved': {
    version: 1,
    fields: {
      at: 'number',
      step: 'int',
      version: 'int',
      name: 'string',
      digest: 'string',
      manifest: { optional: 'string' },
      updates: { optional: 'int' },
      bytes: { optional: 'int' },
      epoch: { optional: 'int' },
    },
  },
  'checkpoint.removed': {
    version: 1,
    fields: { at: 'number', step: 'int', name: 'string', epoch: { optional: 'int' } },
  },
  'stage.changed': {
    version: 1,
    fields: {
      at: 'number',
      stage: 'string',
      step: 'int',
      reason: 'string',
      index: { optional: 'int' },
      resetOptimizer: { optional: 'boolean' },
      updateReference: { optional: 'boolean' },
      epoch: { optional: 'int' },
    },
  },
  'stage.progressed': {
    version: 1,
    fields: {
      ...{ at: 'number', stage: 'string', done: 'number', loss: 'number' },
      leftSeconds: { optional: 'number' },
      epoch: { optional: 'int' },
    },
  },
} as const satisfies ShapesOf<LearnerFact['type']>
