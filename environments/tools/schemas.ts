/**
 * Tools of an agent that acts on files, as a chat template describes them: name, description, JSON schema of the
 * arguments.
 *
 * `bash`, `str_replace_editor` and `mcp` act in the environment of the rollout's task; `submit` ends a step of the
 * task, or the rollout.
 */
import type { TaskEnvironment } from '../../messages/facts'

export const bashTool = {
  name: 'bash',
  description:
    'Runs a command with bash. Directory, variables and functions carry over to the next command; processes in the ' +
    'background go on. Standard input is empty.',
  parameters: {
    type: 'object',
    properties: { command: { type: 'string', description: 'The command, of one or more lines.' } },
    required: ['command'],
  },
} as const

export const editorTool = {
  name: 'str_replace_editor',
  description:
    'Shows and edits text files. view: a file with line numbers, or the names in a directory. create: writes file_text. ' +
    'str_replace: replaces old_str, which must occur exactly once, by new_str. insert: puts new_str after line insert_line.',
  parameters: {
    type: 'object',
    properties: {
      command: { type: 'string', enum: ['view', 'create', 'str_replace', 'insert'] },
      path: { type: 'string', description: 'Absolute path.' },
      file_text: { type: 'string', description: 'For create: the whole text.' },
      old_str: { type: 'string', description: 'For str_replace: the text to replace.' },
      new_str: { type: 'string', description: 'For str_replace and insert: the new text.' },
      insert_line: { type: 'integer', description: 'For insert: 0 puts the text before the first line.' },
      view_range: {
        type: 'array',
        items: { type: 'integer' },
        description: 'For view: first and last line; -1 stands for the end.',
      },
    },
    required: ['command', 'path'],
  },
} as const

export const mcpTool = {
  name: 'mcp',
  description:
    "Calls a tool of one of the task's MCP servers. Without `tool` it lists the server's tools and their arguments.",
  parameters: {
    type: 'object',
    properties: {
      server: { type: 'string', description: 'Name of the server.' },
      tool: { type: 'string', description: "Name of the server's tool." },
      arguments: { type: 'object', description: 'Arguments of the tool.' },
    },
    required: ['server'],
  },
} as const

export const submitTool = {
  name: 'submit',
  description:
    'Ends the task, or a step of it: the files are judged as they are. If a step follows, its instruction comes back.',
  parameters: { type: 'object', properties: {}, required: [] },
} as const

/**
 * Deadline of a call in ms: the recipe's `toolTimeoutMs`. The exception is `submit` in a task of several steps: it runs
 * the step's verifier, and has the task's own deadline.
 */
export const deadlineOf = (
  task: Pick<TaskEnvironment, 'steps'> | undefined,
  tool: string,
  toolTimeoutMs: number,
): number => (tool === submitTool.name ? task?.steps?.timeoutMs : undefined) ?? toolTimeoutMs

/** Names of the tools that act in an environment. */
export const environmentTools: ReadonlySet<string> = new Set([bashTool.name, editorTool.name, mcpTool.name])
