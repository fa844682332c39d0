/**
 * The agent that drives the rollouts: a program, or a Python function, that calls the model through OpenAI's or
 * Anthropic's API.
 *
 * Without this section Troupe's coordinator drives them: the actor that asks for each turn and runs its tool calls. The
 * agent runs with the rights of the user who starts the run, and the recipe must confirm that (`rights`).
 */
import { z } from 'zod'
import { positive } from './numbers'

const label = z.enum(['main', 'subagent', 'compaction', 'aux'])

export const agentSection = z
  .strictObject({
    /**
     * Program and arguments. It starts in an empty directory of its own; files among the arguments are found beside the
     * recipe's file, else in the directory in which Troupe was started.
     */
    command: z.array(z.string().min(1)).min(1).optional(),
    /**
     * Python file with the function that the field `function` names: (task) → None, or the agent's reward. The file is
     * imported once, and each rollout is a fork of that process.
     */
    file: z.string().min(1).optional(),
    function: z.string().min(1).default('run'),
    /** Interpreter of `file`. Default: the one that `troupe setup` installed. */
    interpreter: z.string().min(1).optional(),
    /**
     * Rights of the program. user: the program may read, write and connect to whatever the user may. There is no other
     * value yet.
     */
    rights: z.literal('user'),
    /** Upper bound on the agents that one process of Troupe runs at once. */
    atOnce: positive.max(4096).default(8),
    /** Milliseconds from the program's start after which it is killed; its rollout has then failed. */
    deadlineMs: positive.default(600_000),
    /** Upper bound on the address space of each process of the agent, MiB. Default: none. */
    memoryMb: positive.optional(),
    /** Upper bound on the bytes of an agent's output that are kept; 0: none. */
    logBytes: z.number().int().nonnegative().default(65_536),
    /**
     * Source of the reward. grader: the recipe's `reward`, which judges the model's texts. agent: the agent posts it.
     * check: the program `check` prints it.
     */
    reward: z.enum(['grader', 'agent', 'check']).default('grader'),
    /**
     * For the reward `check`: program and arguments. It runs in the agent's directory once the agent's processes are
     * dead; the last line that it prints is the reward.
     */
    check: z.array(z.string().min(1)).min(1).optional(),
    /** Labels of the agent's model calls that are trained on. */
    trains: z.array(label).min(1).default(['main', 'subagent', 'compaction']),
    /** Environment variables of the agent, besides PATH, HOME, LANG and those of the gateway. */
    environment: z.record(z.string(), z.string()).default({}),
    /** Names of environment variables that the agent gets from Troupe's own environment. */
    passed: z.array(z.string().min(1)).default([]),
  })
  .superRefine((agent, ctx) => {
    const refuse = (field: string, message: string) => ctx.addIssue({ code: 'custom', path: [field], message })
    if ((agent.command === undefined) === (agent.file === undefined))
      refuse('command', 'name either a command, or a file with a function')
    if (agent.interpreter !== undefined && agent.file === undefined)
      refuse('interpreter', 'is for agent.file; a command names its own interpreter')
    if ((agent.reward === 'check') !== (agent.check !== undefined))
      refuse('check', "is required if agent.reward is 'check', and not allowed otherwise")
  })

export type AgentConfig = z.output<typeof agentSection>
