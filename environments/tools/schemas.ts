/**
 * Tools of an agent that acts on files, as a chat template describes them: name, description, JSON schema of the
 * arguments.
 *
 * Invariant: `bash` and `str_replace_editor` act in the environment of the rollout's task; `submit` ends the rollout.
 */
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

export const submitTool = {
  name: 'submit',
  description: 'Ends the task: the files are judged as they are.',
  parameters: { type: 'object', properties: {}, required: [] },
} as const

/** Names of the tools that act in an environment. */
export const environmentTools: ReadonlySet<string> = new Set([bashTool.name, editorTool.name])
