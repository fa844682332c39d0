/**
 * The tool `bash`: one process for each command, and a shell state that carries over.
 *
 * in   a command, an environment        out  the outcome of the call
 * Directory, variables and functions are written to a file of the environment when they have changed, and read before
 * the next command. So a snapshot holds them too, and a fork continues with them. If the image has no bash, sh runs the
 * command, and only directory and exported variables carry over. A command that is killed (at its deadline, say), that
 * replaces the shell with `exec`, or that sets its own EXIT trap, leaves the saved state as it was before.
 */
import { constants } from 'node:os'
import { type ToolOutcome, toolOutcome } from '../../kernels'
import type { Environment, ExecRequest, ExecResult } from '../drivers/driver'
import type { McpServerToml } from '../tasks/taskToml'

/** Prefix of the paths of shell states in the environment; each user has one state for each shell. */
export const shellState = '/tmp/.troupe-shell-'

/** Upper bound on a command in bytes: Linux passes arguments of less than 128 KiB to a program. */
export const mostCommandBytes = 120 * 1024

/** Variables that are not saved: bash sets them itself, or they differ in every process. */
const own =
  '_|PWD|OLDPWD|SHLVL|SHELLOPTS|BASHOPTS|BASH|BASH_*|BASHPID|COLUMNS|LINES|COMP_*|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|HIST*|HOSTNAME|HOSTTYPE|IFS|LINENO|MACHTYPE|OPT*|OSTYPE|PIPESTATUS|PPID|PS4|RANDOM|SECONDS|SRANDOM|TERM|UID|__troupe*'

/**
 * Builds a script that loads the saved shell state, runs the command, and at its exit saves the state if it has
 * changed. `state`: shell commands that print the state; `file`: end of the name of the state's file.
 */
const around = (state: string, file: string) =>
  [
    '__troupe_command=$1; shift',
    `__troupe_file=${shellState}${file}`,
    `__troupe_state() { ${state}; }`,
    'if [ -O "$__troupe_file" ] && [ ! -L "$__troupe_file" ]; then . "$__troupe_file" 2>/dev/null; fi',
    '__troupe_before=$(__troupe_state 2>/dev/null)',
    `__troupe_save() { __troupe_after=$(__troupe_state 2>/dev/null); if [ "$__troupe_after" != "$__troupe_before" ]; then rm -f "$__troupe_file"; printf '%s\\n' "$__troupe_after" > "$__troupe_file"; fi; } 2>/dev/null`,
    'trap __troupe_save EXIT',
    'eval "$__troupe_command"',
  ].join('; ')

/**
 * Script for bash, in one line, so that the line numbers in bash's messages are those of the command. `declare -p`
 * prints readonly variables as readonly: a second declaration fails, which is silenced.
 */
const inBash = around(
  `printf 'cd %q\\n' "$PWD"; for __troupe_name in $(compgen -v); do case $__troupe_name in ${own}) ;; *) declare -p "$__troupe_name";; esac; done; for __troupe_name in $(compgen -A function); do case $__troupe_name in __troupe*) ;; *) declare -f "$__troupe_name";; esac; done`,
  '$UID',
)

/** Script for images without bash, such as Alpine's: directory and exported variables carry over. */
const inSh = around(
  `printf "cd '%s'\\n" "$(pwd | sed "s/'/'\\\\\\\\''/g")"; export -p | grep -v -E '^(export|declare -x) (PWD|OLDPWD|SHLVL|_)='`,
  'sh-$(id -u)',
)

const launcher =
  'if command -v bash > /dev/null 2>&1; then exec bash -c "$1" bash "$3"; else exec sh -c "$2" sh "$3"; fi'

export interface ToolUse {
  readonly timeoutMs: number
  /** Agent's user in the environment. Default: the image's. */
  readonly user?: string | number
  readonly signal?: AbortSignal
  /** MCP servers of the task, for the tool `mcp`. */
  readonly servers?: readonly McpServerToml[]
}

export async function runBash(environment: Environment, command: unknown, use: ToolUse): Promise<ToolOutcome> {
  if (typeof command !== 'string') return toolOutcome({ status: 'rejected', reason: 'command must be a string' })
  const bytes = Buffer.byteLength(command)
  if (bytes > mostCommandBytes)
    return toolOutcome({ status: 'rejected', reason: `the command has ${bytes} bytes; at most ${mostCommandBytes}` })
  if (command.includes('\0')) return toolOutcome({ status: 'rejected', reason: 'the command contains a NUL character' })
  return outcomeOf(await execAs(environment, ['sh', '-c', launcher, 'sh', inBash, inSh, command], use), use.timeoutMs)
}

/** Runs a program as the agent's user. */
export function execAs(
  environment: Environment,
  command: readonly string[],
  { timeoutMs, user, signal }: ToolUse,
  more: Pick<ExecRequest, 'stdin' | 'maxOutputBytes' | 'cwd'> = {},
): Promise<ExecResult> {
  return environment.exec({ command, timeoutMs, ...(user === undefined ? {} : { user }), ...more }, signal)
}

/** Converts a command's result to the tool call's outcome. Death by a signal or of the environment gives `killed`. */
export function outcomeOf(result: ExecResult, timeoutMs: number): ToolOutcome {
  const { status, exitCode, signal, wallMs, reason } = result
  const common = { stdout: decoder.decode(result.stdout), stderr: decoder.decode(result.stderr), wallMs }
  switch (status) {
    case 'ok':
      return toolOutcome({ status, exitCode: 0, ...common })
    case 'timeout':
      return toolOutcome({ status, timeoutMs, ...common, stderr: [common.stderr, reason].filter(Boolean).join('\n') })
    case 'rejected':
      return toolOutcome({ status, reason: reason ?? 'the command could not be started', ...common })
    case 'lost':
      return toolOutcome({ status: 'killed', reason: 'the environment ended while the command ran', ...common })
    case 'error':
      return signal === null
        ? toolOutcome({ status, exitCode, ...common })
        : toolOutcome({ status: 'killed', signal: signalName(signal), ...common })
  }
}

// ignoreBOM is set, since a byte order mark that the command printed is part of its output.
const decoder = new TextDecoder('utf-8', { ignoreBOM: true })

const signalName = (number: number): string =>
  Object.entries(constants.signals).find(([, value]) => value === number)?.[0] ?? `signal ${number}`
