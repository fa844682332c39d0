/** Recipe terminal: where its tasks come from, which are held out, and how a solution becomes a demonstration. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { paragraphs } from '../../recipes/terminal/demonstrations'
import { suite } from '../../recipes/terminal/suite'
import { writeTask } from '../../recipes/terminal/suite/task'
import { splitTasks, taskSource, terminalTasks } from '../../recipes/terminal/tasks'

const directory = mkdtempSync(join(tmpdir(), 'troupe-terminal-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

test('`tasks` is a short name of `data.tasks`, on the command line and in a file, and unknown to other recipes', () => {
  expect(loadRecipe('terminal', ['tasks=/x']).config.value.data.tasks).toBe('/x')
  const file = join(directory, 'mine.yaml')
  writeFileSync(file, 'extends: terminal\ntasks: /y\n')
  expect(loadRecipe(file).config.value.data.tasks).toBe('/y')
  expect(() => loadRecipe('quickstart', ['tasks=/x'])).toThrow(/data.tasks.*unknown field/)
})

test('tasks that are evaluated on are not trained on, whatever the order of their directories, and at most half are', async () => {
  for (const task of suite.slice(0, 6)) writeTask(join(directory, 'tasks'), task)
  const tasks = await terminalTasks(join(directory, 'tasks'), '', undefined)
  const names = (all: typeof tasks) => all.map(({ harbor }) => harbor.name).sort()
  for (const problems of [0, 2, 5]) {
    const { train, evaluation } = splitTasks(tasks, problems)
    expect(evaluation).toHaveLength(Math.min(problems, 3))
    expect(names([...train, ...evaluation])).toEqual(names(tasks))
    expect(names(splitTasks([...tasks].reverse(), problems).evaluation)).toEqual(names(evaluation))
  }
  const source = taskSource(splitTasks(tasks, 2))
  expect(source.train(0).environment).toMatchObject({ driver: 'local', directory: expect.stringContaining('tasks') })
  expect(source.train(source.size!).id).toBe(source.train(0).id)
  expect(() => taskSource(splitTasks(tasks.slice(0, 1), 2)).evaluation(0)).toThrow(/of 1 in all, at most half/)
})

test('a solution is typed paragraph by paragraph; here-documents stay whole, comments and set are left out', () => {
  const script = `#!/bin/bash\nset -e\n# look\nls\n\ncat > a <<'END'\none\n\n# two\nEND\necho done\n\n\npwd\n`
  expect(paragraphs(script)).toEqual(['ls', "cat > a <<'END'\none\n\n# two\nEND\necho done", 'pwd'])
})
