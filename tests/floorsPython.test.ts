/** The rules of tests/layout/python.ts hold for every Python file that a run uses, and the check catches planted violations. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pythonRoots, pythonViolations } from './layout/python'

const root = join(__dirname, '..')

/** Production Python by path, without tests and without the code that set-up generates from policy.proto. */
function ourPython(): ReadonlyMap<string, string> {
  const files = pythonRoots.flatMap(folder =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map(file => `${folder}/${file}`),
  )
  const ours = files.filter(file => file.endsWith('.py') && !/\/(generated|__pycache__|tests)\//.test(file))
  return new Map(ours.sort().map(file => [file, readFileSync(join(root, file), 'utf8')]))
}

test('no Python import points up or closes a circle, late imports say why, and folders and files are small', () => {
  const sources = ourPython()
  expect(sources.has('policy/troupe_policy/trainer/trainer.py')).toBe(true)
  expect(sources.has('recipes/environment/python/reward.py')).toBe(true)
  expect(pythonViolations(sources)).toEqual([])
})

const policy = (files: Record<string, string>) =>
  new Map(Object.entries(files).map(([file, source]) => [`policy/troupe_policy/${file}`, source]))

const typingOnly = 'from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import A\n'

test.each<[string, ReadonlyMap<string, string>, RegExp]>([
  [
    'an engine that imports the trainer',
    policy({ 'engine/a.py': 'from ..trainer.b import B', 'trainer/b.py': '' }),
    /engine imports policy\/troupe_policy\/trainer\/b\.py/,
  ],
  [
    'a shared model that imports a process',
    policy({ 'model/a.py': 'from ..render import b', 'render/b.py': '' }),
    /model imports/,
  ],
  [
    'a loss that knows the trainer',
    policy({ 'trainer/losses/a.py': 'from ..b import B', 'trainer/b.py': '' }),
    /losses imports/,
  ],
  [
    'an absolute import that points up',
    policy({ 'reward/a.py': 'import troupe_policy.model.b', 'model/b.py': '' }),
    /reward imports/,
  ],
  ['a package without a rule', policy({ 'utils/a.py': '' }), /no rule/],
  [
    'an environment that imports the trainer',
    new Map([...policy({ 'trainer/b.py': '' }), ['recipes/environment/python/a.py', 'import troupe_policy.trainer.b']]),
    /recipes\/environment\/python imports/,
  ],
  [
    'two files in a circle',
    policy({ 'engine/a.py': 'from .b import B', 'engine/b.py': 'from . import a' }),
    /a circle/,
  ],
  [
    'a circle under TYPE_CHECKING',
    policy({ 'trainer/a.py': 'from .b import B', 'trainer/b.py': typingOnly }),
    /a circle/,
  ],
  [
    'a circle through a function',
    policy({
      'trainer/a.py': 'from .b import B',
      'trainer/b.py': 'def f():\n    # late: hides it\n    from .a import A\n',
    }),
    /a circle/,
  ],
  [
    'a late import without a reason',
    policy({ 'model/a.py': 'def f():\n    from .b import B\n', 'model/b.py': '' }),
    /model\/a\.py:2: imports .* inside a function/,
  ],
  [
    'a crowded folder',
    policy(Object.fromEntries(Array.from({ length: 26 }, (_, n) => [`model/m${n}.py`, '']))),
    /holds 26 Python files/,
  ],
  ['a long file', policy({ 'model/a.py': '\n'.repeat(321) }), /has 321 lines/],
])('the check catches %s', (_title, sources, expected) => {
  expect(pythonViolations(sources).join('\n')).toMatch(expected)
})

test('what is allowed in Python is not reported', () => {
  const sources = policy({
    'model/__init__.py': '',
    'model/a.py': 'import torch\nfrom .b import B',
    'model/b.py': '"""from ..engine import a"""',
    'engine/a.py': 'from ..model import a\nfrom ..generated import policy_pb2',
    'server.py': 'def f():\n    # late: torch\n    from .engine.a import A\n    from .model.b import B\n',
  })
  expect(pythonViolations(sources)).toEqual([])
})
