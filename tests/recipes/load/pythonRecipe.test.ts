/** A recipe in a Python file is read, whatever the file prints; a file that cannot be read is an error that says why. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pythonRecipe } from '../../../recipes/load/pythonRecipe'

const folder = mkdtempSync(join(tmpdir(), 'troupe-python-recipe-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

function fileOf(text: string): string {
  const file = join(folder, 'recipe.py')
  writeFileSync(file, text)
  return file
}

test('what the file and its processes print is not taken for the recipe', () => {
  const file = fileOf(
    'import os\nimport atexit; atexit.register(print, "at the end"); print("hello")\nos.write(1, b"from C\\n")\nos.system("echo child; printf x")\nrecipe = {"seed": 3}\n',
  )
  expect(pythonRecipe(file)).toEqual({ seed: 3 })
})

test.each([
  ['raises', 'x = 1\nraise ValueError("no")\n', /recipe\.py:2: ValueError: no$/],
  ['has no recipe', 'x = 1\n', /recipe\.py: has no dict named 'recipe'$/],
  ['ends the process', 'import os\nos.write(1, b"bye\\n")\nos._exit(0)\n', /recipe\.py: .* ends with "bye"$/],
  ['ends the process with a code', 'import os\nos._exit(3)\n', /recipe\.py: cannot be imported: .*3/],
])('a file that %s is an error', (_, text, message) => {
  const file = fileOf(text)
  const error = expect.objectContaining({ code: 'config.unreadable', message: expect.stringMatching(message) })
  expect(() => pythonRecipe(file)).toThrow(error)
})
