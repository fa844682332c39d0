/**
 * Builds the page about one trajectory: its turns and tool calls with their times, its end, its siblings.
 *
 * in   an opened run, a trajectory        out  JSON of api.ts
 * Invariant: its parts (turns and calls, at most 500) come from facts that the run's coordinator accepted. The page of
 * raw events also lists the facts that it ignored.
 */

import { bashTool, snapshotsRoot } from '../../../environments'
import type { ToolAsked, TurnCompleted, TurnInterrupted } from '../../../messages/facts'
import { groupOf } from '../../../messages/ids'
import { changeText } from '../../../replay/files/changeText'
import { forkOf } from '../../../replay/learning/forks'
import { triedSteps } from '../../../replay/learning/learnerLog'
import { placeText } from '../../../replay/log/place'
import { listTrajectories } from '../../../replay/trajectories/filter'
import {
  isCaptured,
  readTrajectories,
  readTrajectory,
  selectionOf,
  type Trajectory,
} from '../../../replay/trajectories/trajectory'
import { explainSelection } from '../../../replay/whatIf/explainSelection'
import type { Entry } from '../../../runtime/journal/journal'
import type { Part, TrajectoryReport } from '../../api'
import { offered } from '../actions/offered'
import { busWords, type CommandPlace, commandOf, commandText } from '../commands'
import type { OpenedRun } from '../openedRun'
import { shownJson, shownLine, shownText } from '../shownText'
import { capturedCalls } from './calls'
import { whyOf } from './group'
import { trajectoryLine } from './lists'

const mostParts = 500

/** Reads a trajectory by its id, or by a part that only its id contains. @throws TroupeError as `readTrajectory` */
export async function trajectoryOf(run: OpenedRun, asked: string): Promise<Trajectory> {
  const isExact = run.index.view.find(asked) !== undefined
  const [found] = isExact ? await readTrajectories(run.recorded, one => one === asked) : []
  return found ?? readTrajectory(run.recorded, asked)
}

export async function trajectoryReport(run: OpenedRun, place: CommandPlace, asked: string): Promise<TrajectoryReport> {
  const one = await trajectoryOf(run, asked)
  const { id, request, reward } = one
  const group = groupOf(id)
  const siblings = await listTrajectories(run.recorded, { group })
  const explained = await explainSelection(run.recorded, group).catch(() => undefined)
  const tried = (await triedSteps(run.recorded)).get(id)
  const summary = siblings.find(s => s.trajectory === id)
  const sibling = siblings.find(s => s.trajectory !== id)
  const captured = capturedCalls(one)
  const fork = await forkOf(run.recorded, one)
  const trained =
    tried === undefined
      ? ''
      : tried.outcome === 'completed'
        ? `; step ${tried.step} trained on it`
        : `; step ${tried.step} has it in its batch and ${tried.outcome === 'open' ? 'is not over yet' : 'was rejected'}`
  return {
    summary: trajectoryLine(run, summary!),
    prompt: request.task.messages.map(m => ({ role: m.role, content: shownText(m.content) })),
    truth: request.task.truth === '' ? null : shownText(request.task.truth, 4096),
    answer: reward === null ? null : shownText(reward.answer, 4096),
    how: reward === null ? null : shownText(reward.how, 200),
    why: reward?.why === undefined ? null : shownText(reward.why, 4096),
    selectionWhy:
      explained === undefined || request.purpose !== 'train'
        ? ''
        : `${whyOf(one, explained, run.positiveAbove)}${trained}`,
    penalty: selectionOf(one).penalty,
    tools: request.tools.map(name => shownLine(name)),
    seed: request.seed,
    promptTokens: request.tokens.length,
    forkOf:
      fork === undefined
        ? null
        : {
            ...{ parent: fork.parent, turn: fork.turn, run: fork.parentRun ?? place.run },
            unit: isCaptured(one) ? 'call' : 'turn',
          },
    parts: [...partsOf(one), ...captured].slice(0, mostParts),
    siblings: siblings.map(({ trajectory, reward: own, selection }) => ({
      ...{ trajectory, reward: own, positive: run.isPositive(own), selection },
    })),
    command: commandOf(place, 'replay', 'show', id),
    commands: [
      // A captured session (an agent's calls through the gateway) cannot be rerun here, since its agent decides its
      // calls. The gateway can fork it (docs/gateway.md).
      ...(captured.length > 0
        ? []
        : [
            offered(run, place, 'fork at a turn and go on live', { action: 'fork', trajectory: id, turn: 1 }),
            { what: "run this trajectory's decisions again", command: commandOf(place, 'replay', 'run', id) },
            offered(run, place, 'how it would end under other limits', {
              ...{ action: 'limits', target: id, limit: 'turns', most: Math.max(1, (summary?.turns ?? 1) - 1) },
            }),
          ]),
      offered(run, place, 'score again with a changed reward', { action: 'rescore', target: id }),
      ...(sibling === undefined
        ? []
        : [
            offered(run, place, 'compare with a sibling', {
              ...{ action: 'diff', trajectory: id, other: sibling.trajectory },
            }),
          ]),
      { what: 'what it waits for, or how it ended', command: commandText(['why', place.run, id, ...busWords(place)]) },
      { what: 'trace it to the step that trained on it', command: commandOf(place, 'replay', 'lineage', id) },
    ],
  }
}

function partsOf(one: Trajectory): readonly Part[] {
  const asked = new Map<string, { readonly fact: ToolAsked; readonly at: number }>()
  return one.entries.flatMap((entry): Part[] => {
    const fact = entry.message
    if (fact.type === 'turn.completed' || fact.type === 'turn.interrupted') return [turnPart(fact, entry)]
    if (fact.type === 'tool.asked') asked.set(`${fact.turn}#${fact.call}`, { fact, at: fact.at })
    if (fact.type !== 'tool.completed') return []
    const ask = asked.get(`${fact.turn}#${fact.call}`)
    const { code = isBash(fact.tool) ? ask?.fact.arguments.command : undefined } = ask?.fact.arguments ?? {}
    return [
      {
        kind: 'call',
        ...{ turn: fact.turn, call: fact.call, tool: shownLine(fact.tool, 80), status: fact.status },
        // A call with code (of bash: a command) is shown as that code alone; the arguments of other calls as JSON.
        arguments: typeof code === 'string' ? shownText(code) : shownJson(ask?.fact.arguments ?? {}),
        text: shownText(fact.text),
        stderr: shownText(fact.stderr === fact.text ? '' : fact.stderr),
        ...{ exitCode: fact.exitCode, signal: fact.signal ?? null, wallMs: fact.wallMs },
        waitedMs: ask === undefined ? null : Math.max(0, fact.at - ask.at - fact.wallMs),
        executor: fact.executor === null ? null : shownLine(fact.executor, 80),
        files: fact.files === undefined ? null : shownText(changeText(fact.files, { root: snapshotsRoot() })),
        ...{ place: placeText(entry), at: fact.at },
      },
    ]
  })
}

const isBash = (tool: string) => tool === bashTool.name

function turnPart(fact: TurnCompleted | TurnInterrupted, entry: Entry): Part {
  const isCompleted = fact.type === 'turn.completed'
  const timing = isCompleted ? fact.timing : undefined
  const between = (from: number | undefined, to: number | undefined) =>
    from === undefined || to === undefined || from === 0 || to < from ? null : to - from
  return {
    kind: 'turn',
    ...{ turn: fact.turn, attempt: fact.attempt, tokens: fact.tokens.length, interrupted: !isCompleted },
    text: shownText(isCompleted ? fact.text : fact.error),
    finish: isCompleted ? fact.finish : fact.reason,
    engine: shownLine(fact.engine, 80),
    versions: [...new Set(fact.segments.map(s => s.policyVersion))],
    queuedMs: between(timing?.queuedAt, timing?.startedAt),
    firstTokenMs: between(timing?.startedAt, timing?.firstTokenAt),
    generationMs: between(timing?.startedAt, timing?.endedAt),
    meanLogprob: fact.logprobs.length === 0 ? null : fact.logprobs.reduce((a, b) => a + b, 0) / fact.logprobs.length,
    ...{ place: placeText(entry), at: fact.at },
  }
}
