/** What code that a model writes can import: by default numpy and sympy, and otherwise what a recipe names, or an error. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { dispatcher, joinExecutor } from '../../../actors'
import { checkEnvironment, recordRunStart, startOf } from '../../../actors/run/runStart'
import { codeOptions, environmentOf } from '../../../actors/tools/codeEnvironment'
import { openRunTools, toolSchemas } from '../../../actors/tools/runTools'
import { toolsSection } from '../../../config/sections/tools'
import type { ExecuteTool } from '../../../messages/commands'
import type { ToolCompleted } from '../../../messages/facts'
import { epoch, executorId, groupId, runId, trajectoryId } from '../../../messages/ids'
import { loadRecipe } from '../../../recipes/load/loadRecipe'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { systemEffects } from '../../../runtime/effects'
import { openTroupe } from '../../../runtime/embed'
import { createLog } from '../../../runtime/log'
import { packagesVenv, pythonPath } from '../../../runtime/python'
import { openSandbox } from '../../../sandbox'
import { environmentChanges } from '../../../sandbox/environment'
import { pythonTool } from '../../../sandbox/tools/pythonTool'
import { until } from '../../support/until'

jest.setTimeout(120_000)
const log = createLog('test', { level: 'silent' })
const recipe = { tools: [pythonTool] }
const tools = (given: object = {}) => ({ tools: toolsSection.parse(given) })

let bare: string
beforeAll(() => {
  bare = mkdtempSync(join(tmpdir(), 'troupe-bare-'))
  execFileSync('python3', ['-m', 'venv', '--without-pip', bare], { timeout: 60_000 })
})
afterAll(() => rmSync(bare, { recursive: true, force: true }))

test("a run's tool calls import numpy and sympy, and the log has what they printed", async () => {
  const bus = openMemoryBus()
  const troupe = await openTroupe({ bus, run: 'r', log })
  const sandbox = await openSandbox({ ...codeOptions(tools().tools), zygotes: 1, lanes: 4 })
  const opened = await openRunTools({ config: tools(), recipe }, sandbox)
  await (await troupe.host({ behaviour: dispatcher({}), feeds: [{ topic: 'tool-calls', from: 'latest' }] })).live
  const executor = await joinExecutor(troupe, { id: executorId('e'), lanes: 4, tools: opened.tools })
  const codes = [
    'import numpy as np\nint(np.arange(10).sum())',
    'import numpy, sympy\nsympy.factorint(360)',
    'import numpy, sympy\nsympy.factorint(720)',
  ]
  const answers = async () =>
    (await troupe.journal.read('trajectories', 0, 0, 100)).map(({ message }) => message as ToolCompleted)
  for (const [turn, code] of codes.entries()) {
    const call: ExecuteTool = {
      ...{ type: 'tool.execute', trajectory: trajectoryId(groupId('g'), 0), turn, call: 0, attempt: 0 },
      ...{ epoch: epoch(0), tool: pythonTool.name, arguments: { code }, timeoutMs: 20_000, responseChars: 1000 },
    }
    await troupe.journal.append([call])
    await until(async () => (await answers()).length === turn + 1, 60_000)
  }
  expect((await answers()).map(({ type, status, text }) => [type, status, text.trim()])).toEqual([
    ['tool.completed', 'ok', 'Tool call success\nstdout: 45'],
    ['tool.completed', 'ok', 'Tool call success\nstdout: {2: 3, 3: 2, 5: 1}'],
    ['tool.completed', 'ok', 'Tool call success\nstdout: {2: 4, 3: 2, 5: 1}'],
  ])
  await executor.leave({ drainMs: 1000 })
  await opened.close()
  await sandbox.close()
  await troupe.close()
  await bus.close()
})

test('run.started names the environment; a resume under another says what differs, an executor of another is refused', async () => {
  const bus = openMemoryBus()
  const troupe = await openTroupe({ bus, run: 'r', log })
  const warned: string[] = []
  const options = (given: object) => ({
    ...{
      run: runId('r'),
      config: { ...loadRecipe('quickstart').config.value, ...tools(given) } as never,
      acceptCode: false,
      versions: {},
      partitions: 1,
    },
    ...{
      tokenizerDigest: 'd',
      fx: systemEffects,
      log: { warn: (_: unknown, text: string) => warned.push(text) } as never,
    },
  })
  await recordRunStart(troupe.journal, { ...options({}), resume: false })
  const { toolEnvironment } = (await startOf(troupe.journal))!
  const packages = ['mpmath', 'networkx', 'numpy', 'scipy', 'sympy']
  expect(Object.keys(toolEnvironment!.packages)).toEqual(packages)
  expect(toolEnvironment!.digest).toMatch(/^[0-9a-f]{64}$/)
  await recordRunStart(troupe.journal, { ...options({}), resume: true })
  expect(warned).toEqual([])
  await recordRunStart(troupe.journal, { ...options({ python: join(bare, 'bin/python') }), resume: true })
  expect(warned).toEqual([
    expect.stringMatching(/run 'r' now runs in another environment: .*numpy [\d.]+ → \(absent\)/),
  ])
  // An executor that joins is held to the environment of the latest start or resume.
  await checkEnvironment(troupe.journal, tools({ python: join(bare, 'bin/python') }), false)
  await expect(checkEnvironment(troupe.journal, tools(), false)).rejects.toMatchObject({
    code: 'config.other_environment',
    message: expect.stringMatching(
      /run 'r' runs in another environment than this executor has: .*numpy \(absent\) → \d/,
    ),
  })
  await checkEnvironment(troupe.journal, tools(), true)
  await troupe.close()
  await bus.close()
})

test('the digest follows from the versions, and changes are named', async () => {
  const one = await environmentOf({})
  const other = { ...one, digest: 'other', packages: { ...one.packages, numpy: '1.0', more: '2' } }
  expect(environmentChanges(one, { ...one })).toEqual([])
  expect(environmentChanges(one, other)).toEqual([`numpy ${one.packages.numpy} → 1.0`, 'more (absent) → 2'])
})

test('the description of a tool names the modules that are missing, and none where all are there', async () => {
  const described = async (given: object, names = [pythonTool.name, 'python_notebook']) =>
    (await toolSchemas({ config: tools({ ...given, names }), recipe })).map(({ description }) => description)
  expect((await described({}))[0]).toBe(pythonTool.description)
  const missing = 'These modules are not installed: numpy, mpmath, sympy, networkx, scipy.'
  for (const description of await described({ python: join(bare, 'bin/python') }))
    expect(description).toContain(missing)
  const own = { ...pythonTool, name: 'own' }
  const [schema] = await toolSchemas({
    config: tools({ python: join(bare, 'bin/python') }),
    recipe: { tools: [own], toolFunctions: { own: async () => 'done' } },
  })
  expect(schema!.description).toBe(pythonTool.description)
})

test('a host without the packages of the tools, which another host runs, describes them as they are', async () => {
  const config = tools({ packages: ['six==1.17.0'], names: [pythonTool.name] })
  expect(await toolSchemas({ config, recipe })).toEqual([pythonTool])
})

test('a venv that is gone, packages that are not set up and packages that are not pinned are refused by name', async () => {
  await expect(environmentOf({ python: '/gone/bin/python' })).rejects.toMatchObject({
    code: 'sandbox.no_python',
    message: expect.stringContaining('/gone/bin/python'),
  })
  await expect(openSandbox(codeOptions({ python: '/gone/bin/python' }))).rejects.toMatchObject({
    code: 'sandbox.no_python',
    message: expect.stringContaining('/gone/bin/python'),
  })
  expect(() => codeOptions({ packages: ['six==1.17.0'] })).toThrow(
    expect.objectContaining({
      code: 'process.no_packages',
      message: expect.stringContaining(`six==1.17.0: looked in ${packagesVenv(['six==1.17.0'])}`),
      hint: "npx troupe setup packages 'six==1.17.0'",
    }),
  )
  expect(toolsSection.safeParse({ packages: ['six'] }).error?.issues[0]?.message).toContain('not pinned')
  expect(toolsSection.safeParse({ packages: ['six>=1'] }).success).toBe(false)
  expect(toolsSection.safeParse({ preload: ['os.system()'] }).success).toBe(false)
  expect(codeOptions({ preload: ['sympy'] })).toEqual({ python: pythonPath(), preload: ['sympy'] })
})
