/**
 * The tools of `troupe mcp`: each is one command of the command line over a log.
 *
 * in   arguments that fit the tool's schema        out  the words of the command
 * Invariant: a value of a client is a positional after `--` or stands in `--name=value`, so that it can name no other
 * option.
 */
import { z } from 'zod'

export interface LogTool {
  readonly description: string
  readonly input: z.ZodRawShape
  /** True if the tool makes a new run, which costs compute. */
  readonly writes?: boolean
  words(given: Readonly<Record<string, unknown>>): readonly string[]
}

const run = z.string().describe('Name of the run; list_runs lists them.')
const trajectory = z.string().describe('Id of a trajectory, group/member, such as s0001.0000/3.')
const option = (name: string, value: unknown): readonly string[] => (value === undefined ? [] : [`--${name}=${value}`])
const flag = (name: string, value: unknown): readonly string[] => (value === true ? [`--${name}`] : [])

export const logTools: Readonly<Record<string, LogTool>> = {
  list_runs: {
    description:
      'Lists the runs of the log: state, recipe, step, pass@1, alarms; the newest first. One JSON line a run.',
    input: {},
    words: () => ['replay', 'runs', '--json'],
  },
  steps: {
    description: 'Metrics of each optimizer step and evaluation of a run: pass@1, tool errors, tokens, groups, loss.',
    input: { run },
    words: given => ['replay', 'steps', ...option('run', given.run)],
  },
  list_trajectories: {
    description:
      'Lists trajectories of a run with reward, turns, tokens, tool calls and errors. Filters may be combined.',
    input: {
      run,
      step: z.number().int().optional().describe('Only trajectories of this optimizer step.'),
      reward: z.string().optional().describe("A test of the reward: '>0', '<0.5', '=1', 'none'."),
      status: z.enum(['running', 'answered', 'truncated', 'failed']).optional(),
      tool_errors: z.boolean().optional().describe('Only trajectories with a failed tool call.'),
      text: z
        .string()
        .optional()
        .describe('Only trajectories with this text in the task, a turn, a call or its result.'),
      limit: z.number().int().min(1).max(1000).optional().describe('Lists at most this many; default 50.'),
    },
    words: given => [
      ...[
        'replay',
        'ls',
        ...option('run', given.run),
        ...option('step', given.step),
        ...option('reward', given.reward),
      ],
      ...[...option('status', given.status), ...flag('tool-errors', given.tool_errors)],
      ...[...option('text', given.text), ...option('limit', given.limit)],
    ],
  },
  show: {
    description:
      'Shows one trajectory: the prompt, each turn, each tool call with its result, the reward, the selection.',
    input: {
      run,
      trajectory,
      turns: z.string().optional().describe("Only these turns: '2', '2..4', '2..'."),
      logprobs: z.boolean().optional().describe('Print every sampled token with its logprob.'),
      full: z.boolean().optional().describe('Do not fold texts of over 40 lines.'),
    },
    words: given => [
      ...['replay', 'show', ...option('run', given.run), ...option('turns', given.turns)],
      ...[...flag('logprobs', given.logprobs), ...flag('full', given.full), '--', String(given.trajectory)],
    ],
  },
  why: {
    description: 'Says what a run, group, trajectory or turn waits for, since when and on whom, or how it ended.',
    input: {
      run,
      id: z.string().optional().describe('A group, a trajectory, or a turn (s0001.0000/3#1); default: the run.'),
    },
    words: given => ['why', '--', String(given.run), ...(given.id === undefined ? [] : [String(given.id)])],
  },
  diff: {
    description: 'Shows the first token in which two trajectories differ, and the text of each from there on.',
    input: { run, a: trajectory, b: trajectory },
    words: given => ['replay', 'diff', ...option('run', given.run), '--', String(given.a), String(given.b)],
  },
  fork: {
    description:
      'Continues a trajectory from a turn, once or several times, with a live engine and live tools, as a new run, and prints the mean reward. ' +
      'It loads a model and takes seconds to minutes. Only if the server was started with --allow-fork.',
    input: {
      run,
      trajectory,
      from_turn: z.number().int().min(0).describe('First turn generated anew (0-based); forks share those before it.'),
      times: z.number().int().min(1).max(64).optional().describe('Number of forks; default 1.'),
      temperature: z.number().min(0).optional(),
    },
    writes: true,
    words: given => [
      ...['replay', 'fork', ...option('run', given.run), ...option('from-turn', given.from_turn)],
      ...[...option('times', given.times), ...option('temperature', given.temperature), '--', String(given.trajectory)],
    ],
  },
}
