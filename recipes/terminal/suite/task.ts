/** Defines the type of the suite's tasks, and writes each task as a directory in Harbor's format. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

export interface SuiteTask {
  readonly name: string
  readonly family: string
  readonly instruction: string
  /** Files below /app, by path. */
  readonly files?: Readonly<Record<string, string>>
  /** Shell commands that solve the task. In a demonstration, each paragraph (ended by a blank line) is one call. */
  readonly solution: string
  /** Shell commands, run in /app, that succeed if the task is solved. Files of `hidden` are in /tests. */
  readonly check: string
  /** Files that only the verifier sees, by path. */
  readonly hidden?: Readonly<Record<string, string>>
}

const dockerfile = 'FROM python:3.12-slim\nWORKDIR /app\nCOPY files/ /app/\n'

const toml = ({ name, family }: SuiteTask) =>
  `schema_version = "1.0"

[task]
name = "troupe/${name}"

[metadata]
family = "${family}"

[agent]
timeout_sec = 120.0

[verifier]
timeout_sec = 60.0

[environment]
network_mode = "no-network"
cpus = 1
memory_mb = 512
`

const testScript = (check: string) =>
  `#!/bin/bash
cd /app
check() {
${check
  .split('\n')
  .map(line => `  ${line}`)
  .join('\n')}
}
if check; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
`

/** Writes the task as a directory below `root`; returns its path. */
export function writeTask(root: string, task: SuiteTask): string {
  const directory = join(root, task.name)
  const put = (path: string, text: string, mode = 0o644) => {
    const file = join(directory, path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text, { mode })
  }
  put('task.toml', toml(task))
  put('instruction.md', `${task.instruction}\n`)
  put('environment/Dockerfile', dockerfile)
  put('environment/files/.keep', '')
  for (const [path, text] of Object.entries(task.files ?? {})) put(`environment/files/${path}`, text)
  put('solution/solve.sh', `#!/bin/bash\nset -e\ncd /app\n\n${task.solution}\n`, 0o755)
  put('tests/test.sh', testScript(task.check), 0o755)
  for (const [path, text] of Object.entries(task.hidden ?? {})) put(`tests/${path}`, text)
  return directory
}
