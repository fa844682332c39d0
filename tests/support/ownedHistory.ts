/**
 * Generates valid histories of a partition with several owners, curricula and schedulers: runs real owner behaviours,
 * each of which has read a common log up to its own position. An owner that was replaced acts on until it reads that.
 *
 * in   choices (random numbers)        out  records with their writers, as `replay verify` reads them
 * The choices decide which process claims when, how far each owner lags, when, how often and to which attempt an answer
 * comes, and what a replaced curriculum and a replaced scheduler still write.
 */
import { coordinator } from '../../actors/rollouts/coordinator'
import { grouper } from '../../actors/rollouts/grouper'
import type { OwnerRequest, RenderRequest } from '../../actors/rollouts/nextActions'
import { type OwnerState, owner } from '../../actors/rollouts/owner'
import type { Command, GenerateTurn } from '../../messages/commands'
import type { Fact } from '../../messages/facts'
import { engineId, epoch } from '../../messages/ids'
import { manualEffects } from '../../runtime/effects'
import type { Decision } from '../../runtime/host/behaviour'
import type { Entry } from '../../runtime/journal/journal'
import { answer, completed, requested, toolCall } from './facts'
import { originAt } from './world'

type Topic = 'trajectories' | 'learner'
type Work = { readonly command: Command } | { readonly render: RenderRequest }

/** Creates the behaviour of a partition's owner: coordinator and grouper. */
export const ownerBehaviour = () =>
  owner(
    coordinator({ turnTimeoutMs: 10_000 }),
    grouper({
      runSeed: 1,
      selection: { variant: 'paper', keep: 2, minNegative: 1, minPositive: 1, rejectEqual: true },
    }),
  )

const members = 4

/**
 * Generates one history.
 * @param choose returns the next choice: a number from 0 up to, not including, its argument
 * @param actions number of random actions after the start
 */
export function lawfulHistory(choose: (below: number) => number, actions: number): readonly Entry[] {
  const written: Entry[] = []
  const log: Fact[] = []
  const work: Work[] = []
  const fx = manualEffects(1000)

  const write = (topic: Topic, writer: string, fact: Fact): number => {
    const offset = topic === 'trajectories' ? log.push(fact) - 1 : written.filter(w => w.topic === topic).length
    written.push({ topic, partition: 0, offset, timestamp: 0, message: fact, writer })
    return offset
  }

  function newOwner(writer: string) {
    const behaviour = ownerBehaviour()
    let state: OwnerState = behaviour.initial()
    let at = 0
    let isLive = false
    const claimed = write('trajectories', writer, { type: 'partition.claimed', at: 0, partition: 0, owner: writer })
    const emit = ({ facts, commands, requests }: Decision & { readonly requests?: readonly OwnerRequest[] }) => {
      for (const fact of facts) write('trajectories', writer, fact)
      work.push(
        ...commands.map(command => ({ command })),
        ...(requests ?? []).map(render => ({ render: render as RenderRequest })),
      )
    }
    /** Folds the next fact of the log, and decides. An owner that meets a later claim has lost its partition. */
    const step = () => {
      const fact = log[at]
      if (fact === undefined) return false
      const before = state
      state = behaviour.evolve(before, fact, originAt(at++))
      if (fact.type === 'partition.claimed' && at - 1 > claimed) isLive = false
      if (isLive && state !== before) emit(behaviour.decide(state, fact as never, fx))
      if (at - 1 === claimed) {
        isLive = true
        emit(behaviour.pending(state, fx))
      }
      return true
    }
    return { step, tick: () => isLive && emit(behaviour.decide(state, { type: 'tick' }, fx)) }
  }

  const curricula: { readonly writer: string; readonly learnerEpoch: ReturnType<typeof epoch>; isReplaced: boolean }[] =
    []
  let group = 0
  function newCurriculum() {
    const writer = `c${curricula.length}`
    const learnerEpoch = epoch(write('learner', writer, { type: 'learner.claimed', at: 0, owner: writer }))
    for (const before of curricula) before.isReplaced = true
    write('trajectories', writer, { type: 'curriculum.claimed', at: 0, partition: 0, owner: writer, learnerEpoch })
    curricula.push({ writer, learnerEpoch, isReplaced: false })
  }
  /** A replaced curriculum's requests do not count: the next one makes the same draw. */
  function draw({ writer, learnerEpoch, isReplaced }: (typeof curricula)[number]) {
    for (let member = 0; member < members; member++)
      write('trajectories', writer, requested(`g${group}`, member, { order: members * group + member, learnerEpoch }))
    if (!isReplaced) group++
  }

  const schedulers: { readonly writer: string; claimed: number }[] = []
  function newScheduler(writer: string) {
    const claimed = write('trajectories', writer, { type: 'scheduler.claimed', at: 0, partition: 0, owner: writer })
    schedulers.push({ writer, claimed })
  }
  const started = new Set<string>()
  /**
   * The latest scheduler starts a rollout; so may a former one, if the rollout was asked for before its replacement.
   */
  function start({ trajectory }: GenerateTurn) {
    if (started.has(trajectory)) return
    started.add(trajectory)
    const askedAt = log.findIndex(fact => fact.type === 'turn.asked' && fact.trajectory === trajectory)
    const may = schedulers.filter((_, k) => (schedulers[k + 1]?.claimed ?? Number.POSITIVE_INFINITY) > askedAt)
    const { writer } = may[choose(may.length)]!
    write('trajectories', writer, { type: 'rollout.started', at: 0, trajectory, engine: engineId('e0') })
  }

  /** Answers a command or a request of any owner, a former one's too; now and then it stays, and is answered again. */
  function answerOne() {
    if (work.length === 0) return
    const at = choose(work.length)
    const one = work[at]!
    if (choose(8) > 0) work.splice(at, 1)
    if ('render' in one) {
      const { trajectory, turn, epoch } = one.render
      const tokens = Int32Array.of(8, 9)
      write('trajectories', writerOf(epoch), {
        ...{ type: 'context.appended', at: 0, trajectory, turn, epoch, text: 'r', tokens },
      })
      return
    }
    for (const fact of answersTo(one.command)) write('trajectories', 'port', fact)
  }
  const writerOf = (offset: number) =>
    written.find(entry => entry.topic === 'trajectories' && entry.offset === offset)!.writer!

  function answersTo(command: Command): Fact[] {
    switch (command.type) {
      case 'turn.generate': {
        start(command)
        const { trajectory, turn, attempt } = command
        if (choose(5) > 0) return [completed(command, texts[choose(texts.length)]!)]
        const tokens = Int32Array.from({ length: choose(3) }, (_, k) => k)
        const logprobs = new Float32Array(tokens.length)
        const how = { engine: engineId('e0'), reason: 'aborted', error: '' } as const
        return [{ type: 'turn.interrupted', at: 0, trajectory, turn, attempt, tokens, logprobs, segments: [], ...how }]
      }
      case 'tool.execute': {
        const { trajectory, turn, call, attempt, tool } = command
        const ran = { stdout: '4', stderr: '', exitCode: 0, wallMs: 1, cpuMs: 1, executor: null }
        return [
          { type: 'tool.completed', at: 0, trajectory, turn, call, attempt, tool, status: 'ok', text: '4', ...ran },
        ]
      }
      case 'answer.verify': {
        const { trajectory, attempt } = command
        if (choose(6) === 0) return [{ type: 'reward.failed', at: 0, trajectory, attempt, how: 'raised', why: '' }]
        const reward = choose(2)
        return [{ type: 'reward.assigned', at: 0, trajectory, attempt, reward, answer: '', how: 'test' }]
      }
      default:
        return []
    }
  }

  newCurriculum()
  newScheduler('s0')
  let owners = [newOwner('p0')]
  let claims = 0
  draw(curricula[0]!)
  for (let n = 0; n < actions; n++) {
    const roll = choose(200)
    if (roll < 3) owners = [...owners.slice(-1), newOwner(`p${++claims % 3}`)]
    else if (roll < 5) newCurriculum()
    else if (roll < 8) draw(curricula[choose(curricula.length)]!)
    else if (roll < 10) newScheduler(`s${choose(3)}`)
    else if (roll < 13) {
      fx.advance(choose(40_000))
      owners[choose(owners.length)]!.tick()
    } else if (roll < 100) answerOne()
    else {
      // A former owner may lag for long; the present one folds several facts at once.
      const one = owners[roll < 110 ? 0 : owners.length - 1]!
      for (let k = choose(12); k >= 0 && one.step(); k--);
    }
  }
  return written
}

const texts = [
  toolCall('print(4)'),
  `${toolCall('a')}${toolCall('b')}`,
  answer('4'),
  answer('5'),
  '<tool_call>{"n',
] as const
