/**
 * Tasks run from their start to their reward in real environments: what the oracle and an empty solution get, and that an
 * agent reaches neither the verifier's files nor its reward.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { main } from '../../cli/main'
import {
  buildImage,
  type ImageSource,
  importImage,
  type KeptDriver,
  loadTask,
  localDriver,
  ociDriver,
  ociMissing,
  type RunTaskOptions,
  runTask,
} from '../../environments'
import { readDockerfile } from '../../environments/images/dockerfile'
import { readRewards } from '../../environments/tasks/reward'
import { systemEffects } from '../../runtime/effects'
import { makeMinimalImage } from '../support/minimalImage'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-tasks-'))
let count = 0
afterAll(() => rmSync(directory, { recursive: true, force: true }))

function files(content: Readonly<Record<string, string>>): string {
  const root = join(directory, `files-${count++}`)
  for (const [name, text] of Object.entries(content)) {
    mkdirSync(dirname(join(root, name)), { recursive: true })
    writeFileSync(join(root, name), text)
  }
  return root
}
const taskOf = (content: Readonly<Record<string, string>>) =>
  files({ 'task.toml': '', 'instruction.md': 'x', 'environment/README': '', ...content })

const judge = (condition: string) =>
  `#!/bin/sh\nif ${condition}; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi\n`

test.each<[string, Readonly<Record<string, string>>, object | RegExp]>([
  ['a number in text', { 'reward.txt': ' 0.5\n' }, { reward: 0.5 }],
  ['several numbers', { 'reward.json': '{"reward": 1, "style": 0.2, "ok": true}' }, { reward: 1, style: 0.2, ok: 1 }],
  ['JSON before text', { 'reward.json': '2', 'reward.txt': '0' }, { reward: 2 }],
  ['nothing', {}, /neither/],
  ['an empty file', { 'reward.txt': '' }, /holds no number/],
  ['an infinite number', { 'reward.json': '{"reward": 1e999}' }, /not a finite number/],
  ['a text for a number', { 'reward.json': '{"reward": "1"}' }, /not a finite number/],
  ['a list', { 'reward.json': '[1]' }, /expected a number or an object of numbers/],
])('a reward file with %s', (_title, content, expected) => {
  const read = () => readRewards(files({ unrelated: '', ...content }))
  if (expected instanceof RegExp) expect(read).toThrow(expected)
  else expect(read()).toEqual(expected)
})

test('a Dockerfile is read with its variables, and what has no effect here is refused with its line', () => {
  const text = `ARG BASE=minimal
FROM \${BASE}
ENV A=1 B="two words"
WORKDIR /srv/$A
# a comment
RUN echo "$HOME" && \\
    echo more
COPY --chown=agent:staff a.txt b/ ./to/
USER agent
CMD ["x"]
`
  expect(readDockerfile(text, 'Dockerfile')).toEqual([
    { kind: 'from', image: 'minimal' },
    { kind: 'env', values: { A: '1', B: 'two words' } },
    { kind: 'workdir', path: '/srv/1' },
    { kind: 'run', command: 'echo "$HOME" &&     echo more' },
    { kind: 'copy', sources: ['a.txt', 'b/'], target: './to/', chown: 'agent:staff' },
    { kind: 'user', user: 'agent' },
  ])
  expect(() => readDockerfile('FROM a\n\nCOPY --from=b x y\n', 'D')).toThrow(/^D:3: COPY --from/)
  expect(() => readDockerfile('FROM a\nFROM b\n', 'D')).toThrow(/D:2: a second stage/)
  expect(() => readDockerfile('FROM a\nRUN cat <<EOF\nx\nEOF\n', 'D')).toThrow(/D:2: RUN with a here-document/)
})

const localMissing = process.platform === 'linux' && process.geteuid?.() === 0 ? undefined : 'this suite needs root'
if (localMissing !== undefined) console.warn(`tasks are not run: ${localMissing}`)
const describeLocal = localMissing === undefined ? describe : describe.skip

describeLocal('the driver local', () => {
  let driver: KeptDriver
  beforeAll(() => {
    driver = localDriver({ run: 'tasks', fx: systemEffects, directory: join(directory, 'store') })
  })
  afterAll(async () => {
    await driver.close()
    expect(readdirSync(join(directory, 'store/live'))).toEqual([])
  })
  const rewardsOf = async (content: Readonly<Record<string, string>>, more: Partial<RunTaskOptions> = {}) => {
    const options = { driver, agent: 'oracle', imageOf: async () => undefined, ...more } as const
    return runTask(loadTask(taskOf(content)), options)
  }

  test("a step begins when its own health check succeeds, which its setup may start; one that does not is the task's failure", async () => {
    const steps = (command: string, retries: number) => ({
      'task.toml': `[[steps]]\nname = "one"\n[steps.healthcheck]\ncommand = "${command}"\ninterval_sec = 0.05\nretries = ${retries}\n`,
      'steps/one/instruction.md': 'x',
      'steps/one/workdir/setup.sh': '#!/bin/sh\n(sleep 0.05; touch /app/up) &\n',
      'steps/one/solution/solve.sh': '#!/bin/sh\ntest -e /app/up && touch /app/done\n',
      'steps/one/tests/test.sh': judge('test -e /app/done'),
    })
    expect((await rewardsOf(steps('test -e /app/up', 100))).rewards).toEqual({ reward: 1 })
    await expect(rewardsOf(steps('echo not up; exit 1', 2))).rejects.toMatchObject({
      code: 'environment.start_failed',
      message: expect.stringContaining('health check failed 2 times: not up'),
    })
  })

  test('artifacts: a separate verifier has them where they were, without what they exclude; a directory has them at their destination', async () => {
    const artifacts = join(directory, `artifacts-${count++}`)
    const task = {
      'task.toml':
        'artifacts = ["/app/one", {source = "/app/tree", destination = "kept", exclude = ["*.log", "deep"]}, "/app/none"]\n' +
        '[verifier]\nenvironment_mode = "separate"\n',
      'solution/solve.sh':
        '#!/bin/sh\ncd /app; echo 1 > one; mkdir -p tree/deep; touch tree/a tree/b.log tree/deep/c; echo u > /logs/artifacts/usual\n',
      'tests/test.sh': judge(
        '[ "$(cd /app; find one tree | sort | tr \'\\n\' \' \')" = "one tree tree/a " ] && test -e /logs/artifacts/usual',
      ),
    }
    const { rewards, steps } = await rewardsOf(task, { artifacts })
    expect([rewards, steps[0]!.log]).toEqual([{ reward: 1 }, ''])
    const found = execFileSync('find', ['.', '-type', 'f'], { cwd: artifacts, encoding: 'utf8' })
    expect(found.trim().split('\n').sort()).toEqual(['./app/one', './kept/a', './logs/artifacts/usual'])
  })

  test('a separate verifier whose image holds the tests, as `harbor task init` makes it, judges by them', async () => {
    const root = taskOf({
      'task.toml': 'artifacts = ["/app/greeting"]\n[verifier]\nenvironment_mode = "separate"\n',
      'solution/solve.sh': '#!/bin/sh\necho hi > /app/greeting\n',
      'tests/Dockerfile': 'FROM ubuntu:24.04\nWORKDIR /app\nCOPY . /tests/\n',
      'tests/test.sh': judge('grep -q hi /app/greeting'),
    })
    const imageOf = async (source: ImageSource) =>
      source.kind === 'dockerfile'
        ? buildImage(driver, { file: source.file, context: dirname(source.file), timeoutMs: 20_000 })
        : undefined
    const rewards = async (agent: 'oracle' | 'empty') =>
      (await runTask(loadTask(root), { driver, agent, imageOf })).rewards
    expect([await rewards('oracle'), await rewards('empty')]).toEqual([{ reward: 1 }, { reward: 0 }])
  })

  test('the oracle is rewarded and an empty solution is not', async () => {
    const task = {
      'solution/solve.sh': '#!/bin/sh\necho hi > /app/greeting\n',
      'tests/test.sh': judge('grep -q hi /app/greeting'),
    }
    expect((await rewardsOf(task)).rewards).toEqual({ reward: 1 })
    const empty = await rewardsOf(task, { agent: 'empty' })
    expect(empty.rewards).toEqual({ reward: 0 })
    expect(empty.steps[0]?.log).toMatch(/No such file/)
  })

  test("an agent does not see the verifier's files, and no process of it outlives the agent", async () => {
    const { rewards } = await rewardsOf({
      'tests/test.sh': judge('[ -e /app/began ] && ! grep -q secret /app/seen && ! ps ax | grep -q "[/]app/loop"'),
      'tests/secret': 'secret',
      'solution/solve.sh': `#!/bin/sh
printf '#!/bin/sh\\nwhile :; do ls /tests >> /app/seen; echo 1 > /logs/verifier/reward.txt; echo x > /app/began; done\\n' > /app/loop
chmod +x /app/loop
setsid /app/loop > /dev/null 2>&1 &
until [ -e /app/began ]; do sleep 0.05; done
`,
    })
    expect(rewards).toEqual({ reward: 1 })
  })

  test('a reward file that a surviving process changes later does not count', async () => {
    const { rewards } = await rewardsOf({
      'tests/test.sh':
        '#!/bin/sh\necho 0 > /logs/verifier/reward.txt\nsetsid sh -c "sleep 0.4; echo 1 > /logs/verifier/reward.txt" > /dev/null 2>&1 &\n',
      'solution/solve.sh': '#!/bin/sh\nrm -rf /logs/verifier; ln -s /app /logs/verifier; echo 1 > /app/reward.txt\n',
    })
    expect(rewards).toEqual({ reward: 0 })
  })

  test('a separate verifier sees the artifacts alone', async () => {
    const { rewards } = await rewardsOf({
      'task.toml': 'artifacts = ["/app/out"]\n[verifier]\nenvironment_mode = "separate"\n',
      'tests/test.sh': judge('grep -q good /app/out && ! [ -e /app/other ]'),
      'solution/solve.sh': '#!/bin/sh\necho good > /app/out; echo x > /app/other\n',
    })
    expect(rewards).toEqual({ reward: 1 })
  })

  test('steps share their files, and a step below min_reward ends the task', async () => {
    const steps = {
      'steps/a/instruction.md': 'a',
      'steps/a/solution/solve.sh': '#!/bin/sh\necho a > /app/a\n',
      'steps/a/tests/test.sh': '#!/bin/sh\n[ -e /app/from-step ] && echo 0.5 > /logs/verifier/reward.txt\n',
      'steps/a/workdir/from-step': '',
      'steps/b/instruction.md': 'b',
      'steps/b/solution/solve.sh': '#!/bin/sh\ncat /app/a > /app/b\n',
      'steps/b/tests/test.sh': judge('grep -q a /app/b'),
    }
    const toml = (least: number) => `[[steps]]\nname = "a"\nmin_reward = ${least}\n[[steps]]\nname = "b"\n`
    const whole = await rewardsOf({ ...steps, 'task.toml': toml(0.5) })
    expect(whole.rewards).toEqual({ reward: 0.75 })
    const cut = await rewardsOf({ ...steps, 'task.toml': toml(0.6) })
    expect(cut.steps.map(({ name }) => name)).toEqual(['a'])
  })

  test('a task reads no variable of this process that the user did not name', async () => {
    const task = {
      'task.toml': `[verifier]\nenv = { KEY = "\${SECRET_OF_HOST}", OTHER = "\${NONE:-usual}" }\n`,
      'tests/test.sh': judge('[ "$KEY$OTHER" = givenusual ]'),
      'solution/solve.sh': '#!/bin/sh\n',
    }
    await expect(rewardsOf(task)).rejects.toMatchObject({ code: 'task.variable_refused' })
    expect((await rewardsOf(task, { allowed: { SECRET_OF_HOST: 'given' } })).rewards).toEqual({ reward: 1 })
  })

  test('a health check that fails, and a verifier without a reward, are errors', async () => {
    const base = { 'tests/test.sh': '#!/bin/sh\n', 'solution/solve.sh': '#!/bin/sh\n' }
    const check = '[environment.healthcheck]\ncommand = "echo ill; false"\ninterval_sec = 0.05\nretries = 2\n'
    await expect(rewardsOf({ ...base, 'task.toml': check })).rejects.toThrow(/failed 2 times: ill/)
    await expect(rewardsOf(base)).rejects.toMatchObject({ code: 'task.no_reward' })
  })

  test('`tasks run` prints a line a task and fails if one is not solved', async () => {
    const good = taskOf({ 'solution/solve.sh': '#!/bin/sh\n', 'tests/test.sh': judge('true') })
    const bad = taskOf({ 'solution/solve.sh': '#!/bin/sh\n', 'tests/test.sh': judge('false') })
    const written: string[] = []
    const write = jest.spyOn(process.stdout, 'write').mockImplementation(text => written.push(String(text)) > 0)
    const store = join(directory, 'store')
    const code = await main(['tasks', 'run', good, bad, '--store', store])
    const json = await main(['tasks', 'run', '--json', '--agent', 'empty', bad, '--store', store])
    write.mockRestore()
    process.exitCode = 0
    expect([code, json]).toEqual([1, 0])
    expect(written.join('')).toMatch(
      /^ok {6}files-\d+: reward 1 .*\nFAILED {2}files-\d+: reward 0[\s\S]*1 of 2 tasks ended as expected/,
    )
    expect(JSON.parse(written.at(-1) ?? '')).toMatchObject({ ok: true, agent: 'empty', rewards: { reward: 0 } })
  })
})

const missing = ociMissing()
if (missing !== undefined) console.warn(`the driver oci is not tested: ${missing}`)
const describeOci = missing === undefined ? describe : describe.skip

describeOci('the driver oci', () => {
  const store = join(directory, 'oci-store')
  let driver: KeptDriver
  beforeAll(() => {
    makeMinimalImage(store)
    driver = ociDriver({ run: 'tasks', fx: systemEffects, directory: store })
  })
  afterAll(() => driver.close())

  test("a task's Dockerfile is built once, and its files, variables, directory and user hold", async () => {
    const task = loadTask(
      taskOf({
        'environment/Dockerfile':
          'FROM minimal\nENV COLOUR=red\nWORKDIR /srv/place\nRUN echo built > made && rm /etc/group\nCOPY data in/\nUSER agent\n',
        'environment/data/one.txt': 'one',
        'tests/test.sh': judge('[ "$(cat /srv/place/out)" = "built one red 1000 /srv/place" ] && ! [ -e /etc/group ]'),
        'solution/solve.sh':
          '#!/bin/sh\necho $(cat made in/one.txt) $COLOUR $(id -u) $(pwd) > /tmp/out; cp /tmp/out /srv/place/out || exit 3\n',
        'task.toml': '[agent]\nuser = "root"\n',
      }),
    )
    const built: string[] = []
    const imageOf = async (source: ImageSource) => {
      if (source.kind !== 'dockerfile') return undefined
      const name = await buildImage(driver, { file: source.file, context: task.context, timeoutMs: 20_000 })
      built.push(name)
      return name
    }
    const { rewards, steps } = await runTask(task, { driver, agent: 'oracle', imageOf })
    // The agent's user is root by task.toml, so the line that the image's user would write differs.
    expect([rewards, steps[0]?.agent?.status]).toEqual([{ reward: 0 }, 'ok'])
    const plain = loadTask(
      taskOf({
        'environment/Dockerfile': 'FROM minimal\nUSER agent\n',
        'tests/test.sh': judge('grep -q 1000 /tmp/who'),
        'solution/solve.sh': '#!/bin/sh\nid -u > /tmp/who\n',
      }),
    )
    const options = { timeoutMs: 20_000 }
    const image = await buildImage(driver, {
      file: join(plain.context, 'Dockerfile'),
      context: plain.context,
      ...options,
    })
    const result = await runTask(plain, { driver, agent: 'oracle', imageOf: async () => image })
    expect(result.rewards).toEqual({ reward: 1 })
    const began = performance.now()
    expect(await imageOf(task.image)).toBe(built[0])
    expect(performance.now() - began).toBeLessThan(1000)
    const failing = files({ Dockerfile: 'FROM minimal\nRUN echo reason; exit 4\n' })
    await expect(
      buildImage(driver, { file: join(failing, 'Dockerfile'), context: failing, ...options }),
    ).rejects.toThrow(/exit code 4\): reason/)
    await expect(
      buildImage(driver, {
        file: join(files({ Dockerfile: 'FROM nowhere\n' }), 'Dockerfile'),
        context: failing,
        ...options,
      }),
    ).rejects.toMatchObject({ code: 'environment.no_image' })
  })

  test('layers of `docker save` are unpacked in order, and no link of a layer leads out', async () => {
    const outside = files({ victim: 'untouched' })
    const root = files({
      'one/etc/a': 'a',
      'one/etc/gone': 'x',
      'one/dir/old': 'old',
      'two/etc/.wh.gone': '',
      'two/dir/.wh..wh..opq': '',
      'two/dir/new': 'new',
      'three/leak/victim': 'broken',
    })
    execFileSync('ln', ['-s', outside, join(root, 'two/leak')])
    const layers = ['one', 'two', 'three'].map(name => {
      execFileSync('tar', ['-C', join(root, name), '-czf', join(root, `${name}.tar.gz`), '.'])
      return `${name}.tar.gz`
    })
    writeFileSync(
      join(root, 'config.json'),
      JSON.stringify({ config: { Env: ['A=b=c'], WorkingDir: '/etc', User: '1000' } }),
    )
    writeFileSync(join(root, 'manifest.json'), JSON.stringify([{ Config: 'config.json', Layers: layers }]))
    execFileSync('tar', ['-C', root, '-cf', join(root, 'image.tar'), 'manifest.json', 'config.json', ...layers])
    await importImage(driver.store, join(root, 'image.tar'), 'org/layers:1')
    const rootfs = join(store, 'images', encodeURIComponent('org/layers:1'), 'rootfs')
    expect([readdirSync(join(rootfs, 'etc')), readdirSync(join(rootfs, 'dir'))]).toEqual([['a'], ['new']])
    expect(execFileSync('cat', [join(outside, 'victim')], { encoding: 'utf8' })).toBe('untouched')
    await expect(importImage(driver.store, join(root, 'config.json'), 'bad')).rejects.toMatchObject({
      code: 'environment.no_image',
    })
  })
})
