/** `troupe tasks suite DIR`: writes Troupe's own suite of tasks as directories in Harbor's format. */
import { existsSync } from 'node:fs'
import type { Command } from 'commander'
import { suite, writeSuite } from '../../recipes/terminal/suite'
import { TroupeError } from '../../runtime/errors'

export function registerSuite(tasks: Command): void {
  tasks
    .command('suite')
    .description(`write Troupe's ${suite.length} own tasks as directories in Harbor's format`)
    .argument('<directory>', 'directory to make')
    .action((directory: string) => {
      if (existsSync(directory))
        throw new TroupeError('tasks.exists', {
          boundary: 'cli',
          retriable: false,
          message: `${directory} exists already; the suite is written into a new directory`,
        })
      process.stdout.write(`${writeSuite(directory).length} tasks in ${directory}\n`)
    })
}
