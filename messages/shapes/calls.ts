/** Shapes (field tables for checking) of the facts of captured sessions. */
import type { CallFact } from '../facts'
import { type ShapesOf, sampling } from './parts'

const segments = {
  each: { fields: { policyVersion: 'int', start: 'int', end: 'int' } },
} as const

export const callShapes = {
  'session.opened': {
    version: 1,
    fields: {
      at: 'number',
      trajectory: 'string',
      opening: 'int',
      keyDigest: 'string',
      expiresAt: 'number',
      parent: { optional: 'string' },
    },
  },
  'call.started': {
    version: 1,
    fields: {
      at: 'number',
      trajectory: 'string',
      opening: 'int',
      call: 'int',
      attempt: 'int',
      dialect: { oneOf: { chat: true, completions: true, responses: true, messages: true } },
      model: 'string',
      label: { oneOf: { main: true, subagent: true, compaction: true, aux: true } },
      parent: { nullable: 'int' },
      branch: {
        nullable: {
          oneOf: {
            first: true,
            sample: true,
            rewound: true,
            'answer-edited': true,
            'thinking-stripped': true,
            'tool-result-edited': true,
            'message-edited': true,
            'system-changed': true,
            'tools-changed': true,
            compaction: true,
            'new-conversation': true,
            template: true,
          },
        },
      },
      digest: 'string',
      messages: 'string',
      tools: 'string',
      tokens: 'i32',
      contextTokens: 'int',
      sampling: { fields: sampling },
      seed: 'int',
      maxTokens: 'int',
      asked: { map: 'unknown' },
      opensThinking: { optional: 'boolean' },
      copyOf: { optional: { fields: { trajectory: 'string', call: 'int' } } },
    },
  },
  'call.finished': {
    version: 1,
    fields: {
      at: 'number',
      trajectory: 'string',
      call: 'int',
      attempt: 'int',
      engine: 'string',
      tokens: 'i32',
      logprobs: 'f32',
      entropies: { optional: 'f32' },
      text: 'string',
      finish: { oneOf: { stop: true, length: true, failed: true } },
      error: 'string',
      segments,
      cachedTokens: 'int',
      preemptions: 'int',
      timing: { fields: { queuedAt: 'number', startedAt: 'number', firstTokenAt: 'number', endedAt: 'number' } },
    },
  },
  'call.delivered': {
    version: 1,
    fields: { at: 'number', trajectory: 'string', call: 'int', delivered: 'boolean' },
  },
} as const satisfies ShapesOf<CallFact['type']>
