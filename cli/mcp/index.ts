/**
 * `troupe mcp`: an MCP server on stdin and stdout over the runs of a bus, for coding agents.
 *
 * in   calls of a client        out  what the tool's command (tools.ts) prints, as text
 * Invariants: a call only reads the log, except `fork`, which the user must allow with --allow-fork. A text of more
 * than `longestAnswer` characters is cut; a command that takes longer than `readMs` (a fork: `forkMs`) is killed and
 * its call gets an error. At most `mostAtOnce` commands run at once; a further call is refused.
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import type { Command } from 'commander'
import { version } from '../../package.json'
import { packageRoot } from '../../runtime/python'
import { untilSignal } from '../io/untilSignal'
import { withBus, withDirectory } from '../options/busOptions'
import { logTools } from './tools'

interface McpOptions {
  readonly bus: string
  readonly dir?: string
  readonly allowFork?: boolean
}

const longestAnswer = 60_000
const readMs = 120_000
const forkMs = 30 * 60_000
const mostBytes = 64 * 2 ** 20
const mostAtOnce = 4

export function registerMcp(program: Command): void {
  const command = program
    .command('mcp')
    .description(
      'serve a log to coding agents: an MCP server on stdin and stdout (list_runs, steps, list_trajectories, show, why, diff, fork)',
    )
    .option('--allow-fork', 'let clients continue trajectories, which loads a model and makes a new run')
  withDirectory(withBus(command)).action(async (options: McpOptions) => {
    const server = logServer(options)
    await server.connect(new StdioServerTransport())
    process.exitCode = await untilSignal(true)
    await server.close()
  })
}

function logServer({ allowFork = false, bus, dir }: McpOptions): McpServer {
  const server = new McpServer({ name: 'troupe', version })
  const place = [`--bus=${bus}`, ...(dir === undefined ? [] : [`--dir=${dir}`])]
  let running = 0
  for (const [name, { description, input, writes = false, words }] of Object.entries(logTools)) {
    server.registerTool(
      name,
      { description, inputSchema: input, annotations: { readOnlyHint: !writes, openWorldHint: false } },
      async (given: Readonly<Record<string, unknown>>): Promise<CallToolResult> => {
        if (writes && !allowFork)
          return refusal(
            `${name} is not allowed: the server was started without --allow-fork, which its user has to give`,
          )
        if (running >= mostAtOnce) return refusal(`${mostAtOnce} calls are running; ask again when one is answered`)
        running += 1
        try {
          return await answerOf(withPlace(words(given), place), writes ? forkMs : readMs)
        } finally {
          running -= 1
        }
      },
    )
  }
  return server
}

const refusal = (text: string): CallToolResult => ({ content: [{ type: 'text', text }], isError: true })

/** Inserts the options before `--`, because only positional arguments may follow it. */
function withPlace(words: readonly string[], place: readonly string[]): readonly string[] {
  const at = words.indexOf('--')
  return at < 0 ? [...words, ...place] : [...words.slice(0, at), ...place, ...words.slice(at)]
}

/**
 * Runs a command. Exit code 1 with output is an answer too: `why` exits with 1 when something is stuck, `diff` when the
 * two trajectories differ.
 */
function answerOf(words: readonly string[], timeout: number): Promise<CallToolResult> {
  const bin = join(packageRoot(), 'cli/bin.js')
  const env = { ...process.env, NO_COLOR: '1', TROUPE_LOG: process.env.TROUPE_LOG ?? 'warn' }
  return new Promise(resolve => {
    execFile(process.execPath, [bin, ...words], { timeout, maxBuffer: mostBytes, env }, (failed, stdout, stderr) => {
      const isAnswer = failed === null || (failed.code === 1 && stdout !== '')
      if (isAnswer) return resolve({ content: [{ type: 'text', text: bounded(`${stdout}${stderr}`) }] })
      resolve(
        refusal(bounded(failed.killed ? `killed after ${timeout / 1000} s\n${stderr}` : stderr || failed.message)),
      )
    })
  })
}

const bounded = (text: string): string =>
  text.length <= longestAnswer
    ? text
    : `${text.slice(0, longestAnswer)}\n… ${text.length - longestAnswer} more characters: ask for less (turns, limit, step)`
