/** What a supervisor decides about a child that gave up. */
import fc from 'fast-check'
import { type GivenUp, onGivenUp } from '../../../actors/run/escalation'
import { TroupeError } from '../../../runtime/errors'

const error = (boundary: 'engine' | 'bus' | 'config') =>
  new TroupeError(`${boundary}.broken`, { boundary, retriable: false, message: 'broken' })
const engine: GivenUp = { error: error('engine'), plan: 'rest', isHopeless: false, siblings: 1, rests: 0 }

test('a child that others can stand in for rests, twice as long each time, ten minutes at most', () => {
  const rest = (rests: number) => onGivenUp({ ...engine, rests })
  expect([0, 1, 2, 3, 4, 50].map(rest)).toEqual(
    [60_000, 120_000, 240_000, 480_000, 600_000, 600_000].map(afterMs => ({ do: 'rest', afterMs })),
  )
})

test('the last one of its kind, one that was never up, and one that all of its kind need escalate', () => {
  const faults: Partial<GivenUp>[] = [
    { siblings: 0 },
    { isHopeless: true },
    { plan: 'escalate' },
    { error: error('bus') },
    { error: error('config') },
  ]
  for (const fault of faults) expect(onGivenUp({ ...engine, ...fault })).toEqual({ do: 'escalate' })
})

test('a child never rests while nothing does its work', () => {
  const given = fc.record({
    error: fc.constantFrom(error('engine'), error('bus'), new Error('plain')),
    plan: fc.constantFrom('rest' as const, 'escalate' as const),
    isHopeless: fc.boolean(),
    siblings: fc.nat(1000),
    rests: fc.nat(100),
  })
  fc.assert(fc.property(given, one => onGivenUp(one).do === 'escalate' || (one.plan === 'rest' && one.siblings > 0)))
})
