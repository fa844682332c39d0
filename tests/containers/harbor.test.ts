/**
 * Task directories as Harbor's own loader reads them, beside ours: the same settings, and the same directories refused. Harbor's
 * own trials beside ours, where there is an engine: its oracle, its agent that does nothing, its verifier, the same rewards.
 * It needs a Python with the package harbor (3.12 or newer), which TROUPE_HARBOR_PYTHON names; without it, it is skipped.
 */
import { execFile, execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import {
  type Agent,
  dockerDriver,
  dockerMissing,
  type ImageSource,
  imageOf,
  loadTask,
  runTask,
} from '../../environments'
import { systemEffects } from '../../runtime/effects'
import { troupe } from '../support/cli'
import { withEngine } from '../support/environmentOwner'
import { quickstartHistory, saveHistory } from '../support/histories'
import { importMinimal, makeMinimalImage, removeImages } from '../support/minimalImage'

jest.setTimeout(240_000)

const python = process.env.TROUPE_HARBOR_PYTHON
type Files = Readonly<Record<string, string>>
const base: Files = {
  'task.toml': '',
  'instruction.md': 'Do it.\n',
  'environment/Dockerfile': 'FROM debian\n',
  'tests/test.sh': 'true\n',
}
const toml = (text: string): Files => ({ ...base, 'task.toml': text })

const good: Readonly<Record<string, Files>> = {
  'nothing said': base,
  'a name and deadlines': toml(
    '[task]\nname = "a/b"\n[agent]\ntimeout_sec = 5\nuser = "agent"\n[verifier]\ntimeout_sec = 7.5\n',
  ),
  'sizes as numbers': toml('[environment]\nmemory_mb = 100\nstorage_mb = 200\ncpus = 1.5\nbuild_timeout_sec = 9\n'),
  'sizes as texts': toml('[environment]\nmemory = "1.5G"\nstorage = "512M"\ncpus = 2.0\n'),
  'no internet': toml('[environment]\nallow_internet = false\n'),
  internet: toml('[environment]\nallow_internet = true\n'),
  'an allowlist': toml('[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["pypi.org", "*.debian.org"]\n'),
  'a network for the agent': toml('[environment]\nnetwork_mode = "public"\n[agent]\nnetwork_mode = "no-network"\n'),
  'an image': toml('[environment]\ndocker_image = "debian:12"\nworkdir = "/srv"\n[environment.env]\nA = "c"\n'),
  'a health check': toml('[environment.healthcheck]\ncommand = "true"\nretries = 7\n'),
  'a version': toml('version = "1.0"\n[metadata]\nx = 1\n'),
  'an unknown field': toml('[environment]\nmemry_mb = 5\n'),
  'a canary': { ...base, 'instruction.md': '<!-- harbor canary 1 -->\n# a CANARY\n\nDo it.\n' },
  steps: {
    ...toml(
      '[agent]\ntimeout_sec = 5\n[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n[steps.agent]\ntimeout_sec = 9\n',
    ),
    'steps/one/instruction.md': 'first',
    'steps/one/tests/test.sh': 'true',
    'steps/two/instruction.md': 'second',
    'steps/two/tests/test.sh': 'true',
  },
}

const bad: Readonly<Record<string, Files>> = {
  'no TOML': toml('a = ['),
  'a deadline that is a text': toml('[agent]\ntimeout_sec = "soon"\n'),
  'sizes that contradict': toml('[environment]\nmemory = "1G"\nmemory_mb = 5\n'),
  'hosts without an allowlist': toml('[environment]\nallowed_hosts = ["a.b"]\n'),
  'an unknown network': toml('[environment]\nnetwork_mode = "some"\n'),
  'a name without organization': toml('[task]\nname = "b"\n'),
  'a step twice': { ...good.steps!, 'task.toml': '[[steps]]\nname = "one"\n[[steps]]\nname = "one"\n' },
  'a step without its files': toml('[[steps]]\nname = "three"\n'),
  'no test script': Object.fromEntries(Object.entries(base).filter(([name]) => name !== 'tests/test.sh')),
  'no environment': Object.fromEntries(Object.entries(base).filter(([name]) => !name.startsWith('environment'))),
}

if (python === undefined) {
  console.warn("Harbor's own loader is not compared: TROUPE_HARBOR_PYTHON names no Python with the package harbor")
  test.skip("Harbor's own loader: TROUPE_HARBOR_PYTHON is not set", () => {})
} else {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-harbor-'))
  afterAll(() => rmSync(directory, { recursive: true, force: true }))

  const written = (files: Files): string => {
    const root = join(mkdtempSync(join(directory, 'x')), 'task')
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, name)), { recursive: true })
      writeFileSync(join(root, name), text)
    }
    return root
  }
  const harbor = (
    all: Readonly<Record<string, Files>>,
  ): readonly (readonly [string, Files, Record<string, unknown>])[] => {
    const program = readFileSync(join(__dirname, '../support/harborFacts.py'), 'utf8')
    const input = JSON.stringify(Object.values(all))
    const found = JSON.parse(execFileSync(python, ['-c', program], { input, encoding: 'utf8' }))
    return Object.entries(all).map(([title, files], n) => [title, files, found[n]])
  }

  test('what Harbor reads in a task, we read too', () => {
    for (const [title, files, theirs] of harbor(good)) {
      const { name, config, steps } = loadTask(written(files))
      const { agent, environment, verifier } = JSON.parse(JSON.stringify(config))
      // A task that says nothing about the network gets none here: docs/tasks.md.
      const { saysNetwork, limitsStorage, ...own } = environment
      const ours = {
        ...{ name, agent, verifier, instruction: config.steps?.length ? '' : steps[0]!.instruction },
        environment: saysNetwork ? own : { ...own, network_mode: 'public' },
        steps: config.steps?.length ? steps.map(step => ({ name: step.name, instruction: step.instruction })) : [],
      }
      expect({ title, ...theirs }).toMatchObject({ title, ...ours })
    }
  })

  test('what Harbor refuses, we refuse too', () => {
    for (const [title, files, theirs] of harbor(bad)) {
      expect({ title, theirs }).toMatchObject({ title, theirs: { refused: expect.any(String) } })
      expect(() => loadTask(written(files))).toThrow()
    }
  })

  test('what is exported in ATIF, Harbor reads whole', async () => {
    const bus = join(directory, 'bus')
    await saveHistory(bus, quickstartHistory())
    const words = ['replay', 'export', '--all', '--format', 'atif', '--bus', `lmdb:${bus}`, '--run', 'history']
    const { stdout } = await troupe(words).done
    const program = `
import json, sys
from harbor.models.trajectories.trajectory import Trajectory
for line in sys.stdin:
    read = Trajectory.model_validate_json(line)
    assert read.to_json_dict() == json.loads(line, object_hook=lambda o: {k: v for k, v in o.items() if v is not None})
    print(read.session_id)`
    const read = execFileSync(python, ['-c', program], { input: stdout, encoding: 'utf8' }).trim().split('\n')
    expect(read).toEqual(
      stdout
        .trim()
        .split('\n')
        .map(line => JSON.parse(line).session_id),
    )
    expect(read.length).toBeGreaterThan(50)
  })

  const engineMissing = dockerMissing()
  if (engineMissing !== undefined) test.skip(`Harbor's oracle: ${engineMissing}`, () => {})
  else
    test("Harbor's oracle, and its agent that does nothing, get the rewards that ours get", async () => {
      const store = join(directory, 'store')
      makeMinimalImage(store)
      const driver = dockerDriver({ run: 'harbor', fx: systemEffects, directory: store })
      await importMinimal(driver.engine, store)
      const words =
        'case "$1" in stop) shift; set -- stop -t 0 "$@";; esac\nexport DOCKER_BUILDKIT=0\nexec docker "$@"\n'
      mkdirSync(join(directory, 'bin'))
      writeFileSync(join(directory, 'bin/container'), `#!/bin/sh\n${words}`, { mode: 0o755 })
      const judge = (condition: string) =>
        `#!/bin/bash\nif ${condition}; then echo 1 > /logs/verifier/reward.txt; else echo 0.25 > /logs/verifier/reward.txt; fi\n`
      const common = {
        'task.toml': '[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 60\n[environment]\nmemory_mb = 256\n',
        'instruction.md': 'Write 42 into /app/answer.\n',
        'environment/Dockerfile': 'FROM minimal\nWORKDIR /app\n',
        'solution/solve.sh': '#!/bin/bash\necho 42 > answer\n',
        'tests/test.sh': judge('[ "$(cat /app/answer)" = 42 ]'),
      }
      const separate = '[environment]\nmemory_mb = 256\n[verifier]\nenvironment_mode = "separate"\n'
      const tests = { 'tests/Dockerfile': 'FROM minimal\nWORKDIR /app\nCOPY . /tests/\n' }
      const tasks: Readonly<Record<string, Files>> = {
        shared: common,
        wrong: { ...common, 'tests/test.sh': judge('[ "$(cat /app/answer)" = 43 ]') },
        json: {
          ...common,
          'tests/test.sh': '#!/bin/bash\necho \'{"reward": 0.5, "style": 2}\' > /logs/verifier/reward.json\n',
        },
        // The verifier's own image holds the tests; the artifact is all that it sees, without what is excluded.
        separate: {
          ...{ ...common, ...tests },
          'task.toml': `artifacts = ["/app/answer", {source = "/app/tree", exclude = ["*.log"]}]\n${separate}`,
          'solution/solve.sh': '#!/bin/bash\necho 42 > answer; mkdir tree; echo 1 > tree/a; echo 2 > tree/b.log\n',
          'tests/test.sh': judge('[ "$(cat /app/answer)" = 42 ] && [ -e /app/tree/a ] && ! [ -e /app/tree/b.log ]'),
        },
        'separate without artifacts': { ...common, ...tests, 'task.toml': separate },
      }
      const agents = { oracle: 'oracle', empty: 'nop' } as const
      const built = (one: ReturnType<typeof loadTask>) => (source: ImageSource) => imageOf(driver, one, source)
      const ours = async (directory: string, agent: Agent) => {
        const task = loadTask(directory)
        return (await runTask(task, { driver, agent, imageOf: built(task) })).rewards
      }
      const theirs = async (task: string, agent: Agent, name: string) => {
        const trial = ['-m', 'harbor.cli.main', 'trial', 'start', '-p', task, '-a', agents[agent]]
        const place = ['--trials-dir', join(directory, 'trials'), '--trial-name', name]
        const env = {
          ...process.env,
          PYTHONPATH: join(__dirname, '../support'),
          PATH: `${join(directory, 'bin')}${delimiter}${process.env.PATH}`,
        }
        await promisify(execFile)(python, [...trial, ...place, '-e', 'harborDocker:DockerWithoutCompose'], { env })
        const result = JSON.parse(readFileSync(join(directory, 'trials', name, 'result.json'), 'utf8'))
        if (result.verifier_result === null) throw new Error(`${name}: ${JSON.stringify(result.exception_info)}`)
        return result.verifier_result.rewards
      }
      try {
        for (const [title, files] of Object.entries(tasks)) {
          const root = written(files)
          const both = (['oracle', 'empty'] as const).map(async agent => {
            const name = `${title.replaceAll(' ', '-')}-${agent}`
            const [mine, harbors] = await Promise.all([ours(root, agent), theirs(root, agent, name)])
            expect({ name, rewards: harbors }).toEqual({ name, rewards: mine })
          })
          await Promise.all(both)
        }
      } finally {
        await driver.close()
        await withEngine(engine => removeImages(engine, store))
      }
    }, 600_000)
}
