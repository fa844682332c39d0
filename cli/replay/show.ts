/**
 * `troupe replay show T`: one trajectory, turn by turn, so that a person can read it.
 * Everything that a model or a tool wrote is escaped before it reaches the terminal.
 */
import type { Command } from 'commander'
import type { GroupRejected, GroupSelected, TrajectoryFact } from '../../messages/facts'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { TroupeError } from '../../runtime/errors'
import { chooseRun, openRun, withBus } from '../runContext'
import { escapeForTerminal, painter } from '../terminal'
import { readFacts } from './trajectories'

interface ShowOptions {
  readonly bus: string
  readonly run?: string
  readonly json?: boolean
  readonly tokens?: boolean
}

export function registerShow(replay: Command): void {
  const command = replay
    .command('show <trajectory>')
    .description('print a trajectory turn by turn (an unambiguous part of its id will do)')
    .option('--run <id>', 'the run (default: the newest)')
    .option('--json', 'its facts, a JSON line each')
    .option('--tokens', 'token ids and logprobs too')
  withBus(command).action(show)
}

async function show(asked: string, options: ShowOptions): Promise<void> {
  const context = await openRun(options.bus, chooseRun(options.bus, options.run), 'read')
  try {
    const facts: TrajectoryFact[] = []
    await readFacts(context.journal, fact => facts.push(fact))
    const trajectory = resolveId(asked, facts)
    const own = facts.filter(f => 'trajectory' in f && f.trajectory === trajectory)
    const decision = facts.find(
      (f): f is GroupSelected | GroupRejected =>
        (f.type === 'group.selected' || f.type === 'group.rejected') && f.group === groupOf(trajectory),
    )
    const lines = options.json
      ? [...own, ...(decision ? [decision] : [])].map(f => JSON.stringify(f, plainArrays))
      : printed(trajectory, own, decision, options.tokens === true)
    process.stdout.write(`${lines.join('\n')}\n`)
  } finally {
    await context.bus.close()
  }
}

/** An exact id, else the only one that contains what was asked for. */
function resolveId(asked: string, facts: readonly TrajectoryFact[]): TrajectoryId {
  const ids = facts.flatMap(f => (f.type === 'rollout.requested' ? [f.trajectory] : []))
  const exact = ids.find(id => id === asked)
  if (exact !== undefined) return exact
  const near = [...new Set(ids.filter(id => id.includes(asked)))]
  if (near.length === 1) return near[0]!
  const found = near.length === 0 ? 'no trajectory matches' : `${near.length} trajectories match`
  throw new TroupeError('cli.no_trajectory', {
    boundary: 'cli',
    retriable: false,
    message: `${found} '${asked}'${near.length > 0 ? `: ${near.slice(0, 8).join(', ')}${near.length > 8 ? ', …' : ''}` : ''}`,
    hint: '`troupe replay ls` lists them',
  })
}

const plainArrays = (_key: string, value: unknown) =>
  value instanceof Int32Array || value instanceof Float32Array ? [...value] : value

const paint = painter(process.stdout)
const indented = (text: string, mark: string) =>
  escapeForTerminal(text)
    .split('\n')
    .map(line => `${mark} ${line}`)
const sampledTail = /<\|im_end\|>\s*$/

export function printed(
  trajectory: TrajectoryId,
  facts: readonly TrajectoryFact[],
  decision: GroupSelected | GroupRejected | undefined,
  tokens: boolean,
): string[] {
  const lines: string[] = []
  let begun = 0
  for (const fact of facts) {
    switch (fact.type) {
      case 'rollout.requested':
        begun = fact.at
        lines.push(paint('bold', `${trajectory}  ${fact.purpose}, step ${fact.step}, task ${fact.task.id}`))
        for (const { role, content } of fact.task.messages) lines.push(...indented(content, paint('dim', `${role} │`)))
        lines.push(paint('dim', `truth: ${escapeForTerminal(fact.task.truth)}   prompt: ${fact.tokens.length} tokens`))
        break
      case 'turn.interrupted':
        lines.push(
          '',
          paint(
            'yellow',
            `turn ${fact.turn} interrupted after ${fact.tokens.length} tokens: ${fact.reason} ${escapeForTerminal(fact.error)}`,
          ),
        )
        break
      case 'turn.completed': {
        const versions = [...new Set(fact.segments.map(s => s.policyVersion))].join('→')
        const { startedAt, endedAt } = fact.timing
        const mean = fact.logprobs.reduce((a, b) => a + b, 0) / Math.max(1, fact.logprobs.length)
        lines.push(
          '',
          paint(
            'cyan',
            `turn ${fact.turn}  ${fact.tokens.length} tokens, ${fact.finish}, policy ${versions}, ${Math.round(endedAt - startedAt)} ms on ${fact.engine}, mean logprob ${mean.toFixed(3)}, ${fact.cachedTokens} cached`,
          ),
          ...indented(fact.text.replace(sampledTail, ''), paint('cyan', '│')),
        )
        if (tokens)
          lines.push(paint('dim', [...fact.tokens].map((t, i) => `${t}:${fact.logprobs[i]!.toFixed(2)}`).join(' ')))
        break
      }
      case 'tool.completed':
        lines.push(
          paint(
            fact.status === 'ok' ? 'green' : 'red',
            `  tool ${escapeForTerminal(fact.tool) || '(unreadable call)'}  ${fact.status}${fact.executor === null ? '' : `, ${fact.wallMs.toFixed(0)} ms`}`,
          ),
          ...indented(fact.text, paint(fact.status === 'ok' ? 'green' : 'red', '  │')),
        )
        break
      case 'rollout.finished':
        lines.push(
          '',
          `${fact.outcome} (${fact.reason}) after ${((fact.at - begun) / 1000).toFixed(2)} s: ${fact.turns} turns, ${fact.sampledTokens} tokens sampled, ${fact.toolErrors} of ${fact.toolCalls} tool calls failed`,
        )
        break
      case 'reward.assigned':
        lines.push(
          paint(
            fact.reward > 0 ? 'green' : 'red',
            `reward ${fact.reward}  answer '${escapeForTerminal(fact.answer)}' (${fact.how})`,
          ),
        )
        break
    }
  }
  lines.push(...selectionLines(trajectory, decision))
  return lines
}

function selectionLines(trajectory: TrajectoryId, decision: GroupSelected | GroupRejected | undefined): string[] {
  if (decision === undefined) return []
  if (decision.type === 'group.rejected') return [`group rejected: ${decision.reason}`]
  const member = Number(trajectory.slice(trajectory.lastIndexOf('/') + 1))
  const kept = decision.kept.find(k => k.member === member)
  if (kept !== undefined)
    return [`kept by ${decision.selection}: advantage ${kept.advantage.toFixed(3)}, penalty ${kept.penalty.toFixed(3)}`]
  const dropped = decision.dropped.find(d => d.member === member)
  return [`dropped by ${decision.selection}${dropped === undefined ? '' : `: penalty ${dropped.penalty.toFixed(3)}`}`]
}
