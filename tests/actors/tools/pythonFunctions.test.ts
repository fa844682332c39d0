/** Functions of a user's Python file as tools: schemas from hints and docstrings, calls in the sandbox and beside it. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { functionSchemas } from '../../../actors/tools/pythonFunctions'
import { openRunTools, type RunTools } from '../../../actors/tools/runTools'
import type { Tool } from '../../../actors/tools/toolPort'
import { toolsSection } from '../../../config/sections/tools'
import { openSandbox, type Sandbox } from '../../../sandbox'

jest.setTimeout(60_000)

const folder = mkdtempSync(join(tmpdir(), 'troupe-functions-'))
const write = (name: string, text: string) => {
  writeFileSync(join(folder, name), text)
  return join(folder, name)
}

const file = write(
  'tools.py',
  `"""Tools."""
import asyncio
import time

print("imported")


def price(item: str, count: int = 1) -> dict:
    """Looks up a price.

    Args:
        item: Name of the item.
        count: How many.
    """
    print("looking")
    return {"item": item, "total": 17 * count}


async def slow(seconds: float) -> str:
    """Waits.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return "waited"


def fails() -> str:
    """Fails."""
    raise ValueError("no such item")


def read() -> str:
    """Reads this file."""
    return open(__file__).read()[:12]


def _hidden():
    pass
`,
)

let sandbox: Sandbox
beforeAll(async () => {
  sandbox = await openSandbox({ lanes: 1 })
})
afterAll(async () => {
  await sandbox.close()
  rmSync(folder, { recursive: true })
})

const open = (run: 'sandbox' | 'beside'): Promise<RunTools> =>
  openRunTools(
    { config: { tools: toolsSection.parse({ names: [], functions: { file, run } }) }, recipe: { tools: [] } },
    sandbox,
  )
const call = (tools: RunTools, name: string, args: object, timeoutMs = 10_000) =>
  (tools.tools.get(name) as Tool)(args as Record<string, unknown>, { timeoutMs }, new AbortController().signal)

test('type hints give the types, docstrings the descriptions; a name that begins with an underscore is no tool', async () => {
  const schemas = await functionSchemas({ file, run: 'sandbox' })
  expect(schemas.map(({ name }) => name)).toEqual(['price', 'slow', 'fails', 'read'])
  expect(schemas[0]).toEqual({
    name: 'price',
    description: 'Looks up a price.',
    parameters: {
      type: 'object',
      properties: {
        item: { type: 'string', description: 'Name of the item.' },
        count: { type: 'integer', description: 'How many.' },
      },
      required: ['item'],
    },
  })
  expect(await functionSchemas({ file, names: ['read'], run: 'sandbox' })).toHaveLength(1)
})

test.each(['sandbox', 'beside'] as const)('%s: a call gives the value, and says what failed and where', async run => {
  const tools = await open(run)
  expect(await call(tools, 'price', { item: 'lamp', count: 3 })).toMatchObject({
    status: 'ok',
    stdout: '{"item": "lamp", "total": 51}',
    stderr: 'looking\n',
  })
  expect(await call(tools, 'slow', { seconds: 0 })).toMatchObject({ status: 'ok', stdout: 'waited' })
  expect(await call(tools, 'fails', {})).toMatchObject({
    status: 'error',
    exitCode: 1,
    stderr: expect.stringMatching(/ValueError: no such item \(tools\.py:31\)/),
  })
  expect(await call(tools, 'price', { item: 3 })).toMatchObject({
    status: 'rejected',
    reason: expect.stringMatching(/item/),
  })
  expect(await call(tools, 'slow', { seconds: 30 }, 500)).toMatchObject({ status: 'timeout' })
  await tools.close()
})

test('a file of tools may import what lies on the PYTHONPATH of the user', async () => {
  const before = process.env.PYTHONPATH
  mkdirSync(join(folder, 'library'))
  write('library/mine_of_tools.py', 'unit = "kg"\n')
  const using = write(
    'using.py',
    'import mine_of_tools\ndef weigh(item: str) -> str:\n    """Weighs.\n\n    Args:\n        item: What.\n    """\n',
  )
  process.env.PYTHONPATH = join(folder, 'library')
  try {
    expect(await functionSchemas({ file: using, run: 'beside' })).toMatchObject([{ name: 'weigh' }])
  } finally {
    if (before === undefined) delete process.env.PYTHONPATH
    else process.env.PYTHONPATH = before
  }
})

test('a call in the sandbox sees no file of the user, one beside it does', async () => {
  const [within, beside] = [await open('sandbox'), await open('beside')]
  if (sandbox.level === 'full') expect((await call(within, 'read', {})).status).toBe('error')
  expect(await call(beside, 'read', {})).toMatchObject({ status: 'ok', stdout: '"""Tools."""' })
})

test.each([
  ['def price(item):\n    """Looks up.\n\n    Args:\n        item: It.\n    """\n', /bare\.py:1: price: .*type hint/],
  ['def price(item: str):\n    return 1\n', /bare\.py:1: price: .*docstring/],
  ['import nowhere\n', /bare\.py:1: ModuleNotFoundError: No module named 'nowhere'/],
  ['x = 1\ndef price(:\n', /bare\.py:2: SyntaxError/],
  ['x = 1\n', /bare\.py: defines no function/],
])('a file that gives no schema is refused with its line and the reason: %j', async (source, why) => {
  const bare = write('bare.py', source)
  await expect(functionSchemas({ file: bare, run: 'sandbox' })).rejects.toMatchObject({
    code: 'config.bad_tool_file',
    message: expect.stringMatching(why),
  })
})
