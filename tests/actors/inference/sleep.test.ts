/** A colocated engine sleeps while the trainer works, and no turn is assigned to it then. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { inference } from '../../../actors/inference/inference'
import { inferencePort } from '../../../actors/inference/inferencePort'
import { deviceLeases } from '../../../actors/run/deviceLeases'
import { leased } from '../../../actors/run/leased'
import { scheduler } from '../../../actors/scheduling/scheduler'
import type { Engine } from '../../../backends/engines/engine'
import type { GenerateTurn } from '../../../messages/commands'
import type { Fact } from '../../../messages/facts'
import { engineId, policyVersion } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import { originAt } from '../../support/world'

const engine = engineId('e-0')
const published = (version: number): Fact => ({
  ...{ type: 'weights.published', at: 0, version: policyVersion(version), step: version },
  ...{ url: 'file:///nowhere', digest: '', bytes: 1 },
})
const started = { type: 'step.started', at: 0, step: 1 } as unknown as Fact
const rejected = { type: 'step.rejected', at: 0, step: 1 } as unknown as Fact

function after(sleeps: boolean, ...facts: Fact[]) {
  const behaviour = inference(engine, sleeps)
  const state = facts.reduce((s, fact, offset) => behaviour.evolve(s, fact, originAt(offset)), behaviour.initial())
  return behaviour.pending(state, manualEffects()).requests?.map(({ kind }) => kind) ?? []
}

test('an engine that joins sleeps before the first weights and in the middle of a step, and takes the weights otherwise', () => {
  expect(after(true)).toEqual(['sleep'])
  expect(after(true, published(0))).toEqual(['update'])
  expect(after(true, published(0), started)).toEqual(['sleep'])
  expect(after(true, published(0), started, published(1))).toEqual(['update'])
  expect(after(true, published(0), started, rejected)).toEqual(['update'])
  expect(after(false)).toEqual([])
  expect(after(false, published(0), started)).toEqual(['update'])
})

test('a step begins with sleep, and ends with new weights or, where there are none, by waking up', () => {
  const behaviour = inference(engine, true)
  const decided = (fact: Fact) =>
    behaviour.decide?.(behaviour.initial(), fact as never, manualEffects()).requests?.map(({ kind }) => kind)
  expect([decided(started), decided(published(1)), decided(rejected)]).toEqual([['sleep'], ['update'], ['wake']])
})

test('weights that come while the engine sleeps wake it with them; each change waits for the one before', async () => {
  const calls: string[] = []
  const sleeper = {
    ...{ id: engine, capabilities: {} },
    sleep: async () => {
      await new Promise(setImmediate)
      calls.push('sleep')
    },
    wake: async (update?: { version: number }) => void calls.push(`wake ${update?.version}`),
    updateWeights: async ({ version }: { version: number }) => void calls.push(`update ${version}`),
  } as unknown as Engine
  const perform = inferencePort(sleeper, false, manualEffects())
  const signal = new AbortController().signal
  const facts = async (request: Parameters<typeof perform>[0]) =>
    ((await perform(request, signal)) as { facts: Fact[] } | undefined)?.facts.map(({ type }) => type)
  const update = (version: number) => facts({ kind: 'update', weights: published(version) as never })
  expect(await update(0)).toEqual(['weights.applied'])
  const [slept, applied] = await Promise.all([facts({ kind: 'sleep' }), update(1)])
  expect([slept, applied]).toEqual([['engine.slept'], ['weights.applied']])
  expect(await update(2)).toEqual(['weights.applied'])
  await facts({ kind: 'sleep' })
  expect(await facts({ kind: 'wake' })).toEqual(['engine.woke'])
  expect(calls).toEqual(['update 0', 'sleep', 'wake 1', 'update 2', 'sleep', 'wake undefined'])
})

test.each([true, false])(
  'an engine with a lease loads the weights that wake it; it can sleep itself: %s',
  async sleeps => {
    const calls: string[] = []
    const wake = async (update?: { version: number }) => void calls.push(`wake ${update?.version}`)
    const own = {
      ...{ id: engine, capabilities: {}, lost: new Promise<Error>(() => {}), close: async () => {} },
      updateWeights: async ({ version }: { version: number }) => void calls.push(`update ${version}`),
      ...(sleeps ? { sleep: async () => void calls.push('sleep'), wake } : {}),
    } as unknown as Engine
    const leases = deviceLeases({ plan: { kind: 'colocated', engines: [[]], trainer: [] }, devices: [], variable: 'V' })
    const signal = new AbortController().signal
    const started = await leased(leases, { name: 'e-0', group: 'engines', index: 0 }, signal, async () => own)
    const perform = inferencePort(started, false, manualEffects())
    await perform({ kind: 'sleep' }, signal)
    const decision = await perform({ kind: 'update', weights: published(1) as never }, signal)
    expect(decision?.facts).toMatchObject([{ type: 'weights.applied', version: 1 }])
    expect(calls).toEqual(sleeps ? ['sleep', 'wake 1'] : ['update 1'])
    await perform({ kind: 'sleep' }, signal)
    await perform({ kind: 'wake' }, signal)
    expect(calls).toEqual(sleeps ? ['sleep', 'wake 1', 'sleep', 'wake undefined'] : ['update 1'])
  },
)

test('weights that are requested before a sleep are loaded before it, however long their fetch takes', async () => {
  const calls: string[] = []
  const sleeper = {
    ...{ id: engine, capabilities: {} },
    sleep: async () => void calls.push('sleep'),
    wake: async () => void calls.push('wake'),
    updateWeights: async ({ directory }: { directory: string }) => void calls.push(`update ${directory}`),
  } as unknown as Engine
  const fetched = mkdtempSync(join(tmpdir(), 'troupe-sleep-'))
  for (const name of ['config.json', 'model.safetensors']) writeFileSync(join(fetched, name), '')
  // Weights of the initial model (digest '') that a server offers too are first looked for on this host's disk.
  const weights = { ...published(0), url: pathToFileURL(fetched).href, served: 'http://nowhere' }
  const perform = inferencePort(sleeper, false, manualEffects())
  const signal = new AbortController().signal
  await Promise.all([
    perform({ kind: 'update', weights: weights as never }, signal),
    perform({ kind: 'sleep' }, signal),
  ])
  expect(calls).toEqual([`update ${fetched}`, 'sleep'])
  rmSync(fetched, { recursive: true })
})

test('no turn is assigned while an engine sleeps; a turn that was asked meanwhile is assigned when it has woken or left', () => {
  const behaviour = scheduler('kv-headroom')
  const fx = manualEffects()
  let state = behaviour.initial()
  let offset = 0
  const told = (fact: Fact) => {
    state = behaviour.evolve(state, fact, originAt(offset++))
    return behaviour.decide(state, fact as never, fx).commands.filter(({ type }) => type === 'turn.assign').length
  }
  const joined = (id: string): Fact => ({
    ...{
      type: 'engine.joined',
      at: 0,
      engine: engineId(id),
      kind: 'local',
      model: 'm',
      kvTokens: 4096,
      blockTokens: 16,
    },
    ...{ maxSequences: 4, contextTokens: 1024, prefixSharing: false, prioritySign: -1 },
  })
  const applied = (id: string, version: number): Fact => ({
    ...{ type: 'weights.applied', at: 0, engine: engineId(id), version: policyVersion(version), digest: '' },
  })
  for (const id of ['e-0', 'e-1']) {
    told(joined(id))
    told(applied(id, 0))
  }
  const ask = (member: number) => {
    const turn = {
      ...{ type: 'turn.generate', trajectory: `g/${member}`, turn: 0, attempt: 0, epoch: 0, engine: null, seed: 1 },
      ...{
        promptTokens: 4,
        context: new Int32Array(4),
        resumedTokens: 0,
        maxTokens: 8,
        boundTokens: 16,
        order: member,
      },
      ...{ sampling: {}, minVersion: 0 },
    } as unknown as GenerateTurn
    return behaviour.decide(state, turn as never, fx).commands.filter(({ type }) => type === 'turn.assign').length
  }
  expect(ask(0)).toBe(1)
  told({ type: 'engine.slept', at: 0, engine })
  told({ type: 'engine.slept', at: 0, engine: engineId('e-1') })
  expect(ask(1)).toBe(0)
  expect(told({ type: 'engine.woke', at: 0, engine })).toBe(0)
  expect(told(applied('e-1', 1))).toBe(1)
  told({ type: 'engine.slept', at: 0, engine })
  expect(ask(2)).toBe(0)
  expect(told({ type: 'engine.left', at: 0, engine, reason: 'died' })).toBe(1)
  told({ type: 'engine.slept', at: 0, engine })
  expect(ask(3)).toBe(1)
})
