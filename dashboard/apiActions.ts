/**
 * Actions of the page: what it may ask the server to do, and what the server says about them. Types only.
 *
 * Each action is a `troupe` command, run as a process of its own: it sends an order to the run's process, starts that
 * process again (resume), reads the log and may grade its responses again, or makes a new run (fork). The server builds
 * the command from these fields; the page never sends words of a command line.
 */

/** Text of models, tools, tasks and commands, escaped and cut by the server. */
export interface ShownText {
  readonly text: string
  /** Number of characters that were left out at the end. */
  readonly cut: number
}

/** Names of the recipe's `limits` that the action `limits` can change; each is an upper bound. */
export type LimitName = 'turns' | 'responseTokens' | 'contextTokens' | 'toolResponseChars' | 'callsPerTurn'

export type ActionRequest =
  | { readonly action: 'pause' | 'go-on' | 'drain' | 'abort' | 'resume' }
  /** `turn`: the fork shares the turns before it. */
  | { readonly action: 'fork'; readonly trajectory: string; readonly turn: number }
  /** `target`: a trajectory or a group. */
  | { readonly action: 'rescore'; readonly target: string }
  | { readonly action: 'limits'; readonly target: string; readonly limit: LimitName; readonly most: number }
  | { readonly action: 'selection'; readonly group: string }
  | { readonly action: 'diff'; readonly trajectory: string; readonly other: string }

export type ActionName = ActionRequest['action']

/** A command that a view shows, and the action that runs it if actions are allowed. */
export interface OfferedCommand {
  readonly what: string
  readonly command: string
  readonly action?: ActionRequest
}

export interface ActionLine {
  readonly id: string
  readonly action: ActionName
  readonly command: string
  readonly state: 'running' | 'done' | 'failed'
  /** null while the command runs, if a signal ended it, and if it could not be started. */
  readonly exitCode: number | null
  readonly startedAt: number
  readonly endedAt: number | null
  /** End of the command's output. */
  readonly output: ShownText
  /** Number of characters of the command's output before `output`, which are no longer kept. */
  readonly dropped: number
  /**
   * Run that the action has created or resumes; the page links to it if it is not the shown run. null for other
   * actions, and until the run exists.
   */
  readonly opens: string | null
}

export interface Actions {
  /** False unless the server was started with --allow-actions. */
  readonly allowed: boolean
  /** The run's latest 20 actions since the server started, and older ones that still run; newest first. */
  readonly actions: readonly ActionLine[]
}
