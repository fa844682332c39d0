/** Harbor task directories are read as Harbor reads them, and what is wrong with one is said at once. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { main } from '../../cli/main'
import { environmentSettings } from '../../config'
import {
  environmentSpec,
  loadTask,
  localCapabilities,
  needsOf,
  ociCapabilities,
  type Task,
  unenforcedLimits,
  withOverrides,
} from '../../environments'
import { splitTasks, taskSource, terminalTasks } from '../../recipes/terminal/tasks'

const made: string[] = []
afterAll(() => {
  for (const path of made) rmSync(path, { recursive: true })
})

function taskOf(files: Readonly<Record<string, string>>): string {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-task-'))
  made.push(directory)
  const all = {
    'instruction.md': 'Do it.\n',
    'environment/Dockerfile': 'FROM debian\n',
    'tests/test.sh': 'true\n',
    ...files,
  }
  for (const [name, text] of Object.entries(all)) {
    mkdirSync(dirname(join(directory, name)), { recursive: true })
    writeFileSync(join(directory, name), text)
  }
  return directory
}

test("a task of Harbor's documentation is read with Harbor's defaults", () => {
  const task = loadTask(
    taskOf({
      'task.toml': `version = "1.0"
[task]
name = "harbor/hello-world"
[metadata]
author = "x"
[agent]
timeout_sec = 120.0
user = "agent"
[verifier]
timeout_sec = 60
[environment]
build_timeout_sec = 300
memory = "2G"
storage = "512M"
allow_internet = false
[[environment.mcp_servers]]
name = "files"
transport = "http"
url = "http://localhost:1"
`,
      'instruction.md': '<!-- harbor canary 123 -->\n\nSay hello.\n',
      'solution/solve.sh': 'true\n',
    }),
  )
  expect(task.name).toBe('harbor/hello-world')
  expect(task.image.kind).toBe('dockerfile')
  const { environment, schema_version } = task.config
  expect(schema_version).toBe('1.0')
  expect(environment).toMatchObject({ memory_mb: 2048, storage_mb: 512, network_mode: 'no-network', saysNetwork: true })
  expect(environment.mcp_servers[0]?.transport).toBe('streamable-http')
  expect(task.steps).toHaveLength(1)
  expect(task.steps[0]).toMatchObject({ instruction: 'Say hello.\n', isSeparate: false, testScript: 'test.sh' })
  expect(task.steps[0]?.agent).toMatchObject({ timeout_sec: 120, user: 'agent' })
  expect(task.unknownFields).toEqual([])
})

test('a task with steps has an instruction, tests and limits for each', () => {
  const task = loadTask(
    taskOf({
      'task.toml': `[agent]
timeout_sec = 5
[verifier.environment]
docker_image = "judge"
[[steps]]
name = "one"
[[steps]]
name = "two"
agent = { timeout_sec = 9 }
verifier = { environment_mode = "separate" }
`,
      'steps/one/instruction.md': 'first',
      'steps/two/instruction.md': 'second',
      'steps/two/tests/test.sh': 'true',
    }),
  )
  expect(task.steps.map(({ instruction }) => instruction)).toEqual(['first', 'second'])
  expect(task.steps.map(({ agent }) => agent.timeout_sec)).toEqual([5, 9])
  expect(task.steps.map(({ isSeparate, verifierImage }) => [isSeparate, verifierImage])).toEqual([
    [true, { kind: 'image', name: 'judge' }],
    [true, { kind: 'image', name: 'judge' }],
  ])
})

test.each<[string, Readonly<Record<string, string>>, RegExp]>([
  ['no TOML', { 'task.toml': 'a = [' }, /task\.toml: line 1, column/],
  ['a wrong type', { 'task.toml': '[agent]\ntimeout_sec = "soon"' }, /agent\.timeout_sec: .*expected number/],
  [
    'a contradiction',
    { 'task.toml': '[environment]\nmemory = "1G"\nmemory_mb = 5' },
    /memory: is 1024 MiB and contradicts/,
  ],
  [
    'hosts without an allowlist',
    { 'task.toml': '[environment]\nallowed_hosts = ["a.b"]' },
    /allowed_hosts: is only valid with/,
  ],
  ['a step twice', { 'task.toml': '[[steps]]\nname = "a"\n[[steps]]\nname = "A"' }, /'A' is used twice/],
  ['a step that climbs', { 'task.toml': '[[steps]]\nname = "../a"' }, /steps\.0\.name: must be a portable name/],
  ['an artifact that climbs', { 'task.toml': 'artifacts = ["/a/../../b"]' }, /artifacts\.0/],
  ['a step without its files', { 'task.toml': '[[steps]]\nname = "a"' }, /steps\/a\/instruction\.md: missing/],
])('%s is an error with its place', (_title, files, expected) => {
  expect(() => loadTask(taskOf(files))).toThrow(expected)
})

test('a directory without task.toml, and a link out of the directory, are refused', () => {
  expect(() => loadTask(tmpdir())).toThrow(expect.objectContaining({ code: 'task.unreadable' }))
  const directory = taskOf({ 'task.toml': '' })
  symlinkSync('/etc', join(directory, 'tests/etc'))
  expect(() => loadTask(directory)).toThrow(/tests\/etc: a symbolic link that leads out/)
})

test('cpus too few for a quota of the kernel are refused', () => {
  expect(() => loadTask(taskOf({ 'task.toml': '[environment]\ncpus = 0.001\n' }))).toThrow(/cpus.*0\.01/s)
  expect(needsOf(loadTask(taskOf({ 'task.toml': '[environment]\ncpus = 0.01\n' })), ociCapabilities())).toContainEqual(
    expect.objectContaining({ where: 'environment.cpus', what: '0.01 CPUs' }),
  )
})

test('needs name what a driver cannot give, and unknown fields what was meant', () => {
  const task = loadTask(
    taskOf({
      'task.toml': '[environment]\nnetwork_mode = "public"\ngpus = 1\nmemry_mb = 5\n[agent]\nuser = "agent"\n',
    }),
  )
  const refused = needsOf(task, ociCapabilities()).filter(({ refused }) => refused !== undefined)
  expect(refused.map(({ where }) => where)).toEqual(['environment.network_mode', 'environment.gpus'])
  expect(
    needsOf(task, { ...localCapabilities(), users: false })
      .filter(({ refused }) => refused)
      .map(({ where }) => where),
  ).toEqual(['environment.network_mode', 'environment.gpus', 'agent.user'])
  expect(task.unknownFields).toEqual(['environment.memry_mb (did you mean memory_mb?)'])
})

test('a task that asks for a network is refused with what to do, and runs without one where the user says so', () => {
  const task = loadTask(
    taskOf({
      'task.toml':
        '[environment]\nnetwork_mode = "public"\n[verifier]\nnetwork_mode = "public"\nenvironment_mode = "separate"\n[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.b"]\n',
      'tests/Dockerfile': 'FROM debian\n',
    }),
  )
  const refused = (one: Task) => needsOf(one, ociCapabilities()).filter(({ refused }) => refused !== undefined)
  expect(refused(task).map(({ where }) => where)).toEqual(['environment.network_mode', 'agent.network_mode'])
  expect(refused(task)[0]!.refused).toContain('--no-network')
  const without = withOverrides(task, { network: 'no-network' })
  expect(refused(without)).toEqual([])
  expect(environmentSpec(without.config.environment, undefined, {}).network).toBe('no-network')
  expect(environmentSpec(without.steps[0]!.verifierEnvironment, undefined, {}).network).toBe('no-network')
})

test('a separate verifier has needs of its own, and a phase may not have another network than its environment', () => {
  const refused = (toml: string) =>
    needsOf(loadTask(taskOf({ 'task.toml': toml })), ociCapabilities()).flatMap(({ where, refused }) =>
      refused === undefined ? [] : [`${where}: ${refused}`],
    )
  const separate = '[verifier]\nenvironment_mode = "separate"\n[verifier.environment]\ndocker_image = "judge"\n'
  expect(refused(separate)).toEqual([])
  expect(refused(`${separate}network_mode = "public"\ngpus = 2\n`)).toEqual([
    expect.stringMatching(/^verifier\.environment\.network_mode: .*offers only/),
    expect.stringMatching(/^verifier\.environment\.gpus: /),
  ])
  const hosts = (...names: readonly string[]) =>
    `network_mode = "allowlist"\nallowed_hosts = ${JSON.stringify(names)}\n`
  const inside = (phase: string) => refused(`[environment]\n${hosts('a.example', 'B.example')}[agent]\n${phase}`)
  expect(inside(hosts('b.example', 'a.example'))).toEqual([])
  expect(inside(hosts('c.example'))).toEqual([
    'agent.network_mode: the whole task has one network, allowlist (a.example, b.example)',
  ])
  // A task that says nothing about its network has none.
  expect(refused('[agent]\nnetwork_mode = "no-network"\n')).toEqual([])
  expect(refused('[agent]\nnetwork_mode = "public"\n')).toEqual([
    'agent.network_mode: the whole task has one network, no-network',
  ])
})

test('a limit on disk space that the driver cannot hold is refused with what to do, and is not enforced where the user says so', async () => {
  const directory = taskOf({
    'task.toml': '[environment]\nstorage_mb = 100\n[verifier]\nenvironment_mode = "separate"\n',
  })
  const task = loadTask(directory)
  const cannot = { ...ociCapabilities(), limits: [] }
  const need = (one: Task) => needsOf(one, cannot).find(({ where }) => where === 'environment.storage_mb')
  expect(need(task)!.refused).toMatch(/--no-storage-limit.*environments.storage=no-limit/)
  const without = withOverrides(task, { storage: 'no-limit' })
  expect(need(without)).toEqual({ where: 'environment.storage_mb', what: '100 MiB of disk, not enforced' })
  const environments = (one: Task) => [one.config.environment, one.steps[0]!.verifierEnvironment]
  const ownToml = '[verifier]\nenvironment_mode = "separate"\n[verifier.environment]\nstorage_mb = 200\n'
  const apart = loadTask(taskOf({ 'task.toml': ownToml }))
  const ofVerifier = (one: Task) =>
    needsOf(one, cannot).find(({ where }) => where === 'verifier.environment.storage_mb')
  expect(ofVerifier(apart)!.refused).toMatch(/--no-storage-limit/)
  expect(unenforcedLimits(withOverrides(apart, { storage: 'no-limit' }))).toEqual(['200 MiB of disk, not enforced'])
  const limits = (one: Task) => environments(one).map(each => environmentSpec(each, undefined, {}).limits.storageMb)
  expect([limits(task), limits(without)]).toEqual([
    [100, 100],
    [undefined, undefined],
  ])
  // A run records it in its tasks and says so.
  const settings = { ...environmentSettings(undefined), driver: 'local', storage: 'no-limit' } as const
  const tasks = await terminalTasks(directory, '', settings)
  expect(tasks[0]!.environment).toMatchObject({ storage: 'no-limit' })
  expect(taskSource(splitTasks(tasks, 0)).notes).toEqual([
    expect.stringMatching(/100 MiB of disk, not enforced \(environments.storage=no-limit\)/),
  ])
})

test('`tasks check` prints needs and refusals, and fails if a task cannot be run', async () => {
  const written: string[] = []
  const write = jest.spyOn(process.stdout, 'write').mockImplementation(text => written.push(String(text)) > 0)
  const codes: number[] = []
  codes.push(await main(['tasks', 'check', taskOf({ 'task.toml': '[task]\nname = "a/good"\n' })]))
  const limited = taskOf({ 'task.toml': '[task]\nname = "a/limited"\n[environment]\nstorage_mb = 100\n' })
  codes.push(await main(['tasks', 'check', '--no-storage-limit', limited]))
  codes.push(await main(['tasks', 'check', '--json', taskOf({ 'task.toml': '[environment]\ngpus = 1\n' })]))
  write.mockRestore()
  expect(codes).toEqual([0, 0, 1])
  expect(written.join('')).toMatch(/a\/limited[\s\S]*ok {7}100 MiB of disk, not enforced/)
  expect(written.join('')).toMatch(
    /a\/good {2}\(driver local\)[\s\S]*network: task.toml names none; Troupe gives none[\s\S]*1 of 1 tasks can be run/,
  )
  expect(JSON.parse(written.at(-1) ?? '')).toMatchObject({ ok: false, driver: 'local' })
  process.exitCode = 0
})

test("a Dockerfile that only the driver docker can build is a need that oci and local refuse, beside the task's others", async () => {
  const task = taskOf({
    'task.toml': '[environment]\ngpus = 1\n[verifier]\nenvironment_mode = "separate"\n',
    'environment/Dockerfile': 'FROM a AS b\nFROM b\n',
    'tests/Dockerfile': 'FROM a\nCOPY --from=c /d /d\n',
  })
  for (const driver of ['oci', 'local', undefined]) {
    const written: string[] = []
    const write = jest.spyOn(process.stdout, 'write').mockImplementation(text => written.push(String(text)) > 0)
    await main(['tasks', 'check', '--json', ...(driver === undefined ? [] : ['--driver', driver]), task])
    write.mockRestore()
    process.exitCode = 0
    const { error, driver: used, needs } = JSON.parse(written.join(''))
    expect([error, used]).toEqual([undefined, driver ?? 'oci'])
    const refused = needs.filter((need: { refused?: string }) => need.refused !== undefined)
    expect(refused).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ where: 'environment.gpus' }),
        expect.objectContaining({
          where: 'environment/Dockerfile',
          refused: expect.stringMatching(/Dockerfile:2: .*; the driver docker builds it: --driver docker/),
        }),
        expect.objectContaining({ where: 'tests/Dockerfile', refused: expect.stringMatching(/COPY --from/) }),
      ]),
    )
  }
})

test('`tasks check` and a run choose the same driver, and both refuse a task whose image is not on this machine', async () => {
  const copies = taskOf({ 'task.toml': '', 'environment/Dockerfile': 'FROM no-such/image:1\nWORKDIR /app\n' })
  const runs = taskOf({ 'task.toml': '', 'environment/Dockerfile': 'FROM no-such/image:1\nRUN true\n' })
  const written: string[] = []
  const write = jest.spyOn(process.stdout, 'write').mockImplementation(text => written.push(String(text)) > 0)
  const code = await main(['tasks', 'check', '--json', copies, runs])
  write.mockRestore()
  process.exitCode = 0
  expect(code).toBe(1)
  const [copied, ran] = written.map(line => JSON.parse(line))
  expect(copied).toMatchObject({ ok: true, driver: 'local' })
  expect(ran).toMatchObject({ ok: false, driver: 'oci' })
  expect(ran.needs.at(-1).refused).toMatch(/no-such\/image:1 is not on this machine: docker save no-such\/image:1/)
  expect((await terminalTasks(copies, '', undefined))[0]!.environment.driver).toBe('local')
  await expect(terminalTasks(runs, '', undefined)).rejects.toThrow(
    /no-such\/image:1 is not on this machine|cannot run here/,
  )
})
