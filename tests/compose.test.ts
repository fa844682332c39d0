/** docker-compose.yml and what goes with it: every promise of the file that can be checked without Docker. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Command } from 'commander'
import { parse } from 'yaml'
import { roles } from '../actors/run/run'
import { registerTrain, type TrainOptions } from '../cli/train'
import { composeFile, composeRoot } from './support/composeFile'

const { services, volumes, variables } = composeFile()
const troupes = Object.entries(services).filter(([, service]) => service.image.startsWith('troupe:'))

/** What the command line says to `train`, read by the command's own parser. */
async function parsed(words: readonly string[]): Promise<{ readonly recipe: string; readonly options: TrainOptions }> {
  const program = new Command().exitOverride()
  program.configureOutput({ writeErr: () => {} })
  registerTrain(program)
  let read: { recipe: string; options: TrainOptions } | undefined
  program.commands[0]!.exitOverride().action((recipe: string, options: TrainOptions) => {
    read = { recipe, options }
  })
  await program.parseAsync([...words], { from: 'user' })
  return read!
}

test('every service of ours is a command line that the program takes, for one run on one bus, and every role is there', async () => {
  const found = new Set<string>()
  for (const [name, service] of troupes) {
    const { recipe, options } = await parsed(service.command!)
    expect({ name, recipe, role: options.role, bus: options.bus }).toEqual({
      ...{ name, recipe: 'quickstart', role: name, bus: 'kafka://kafka:9092' },
    })
    expect(options).toMatchObject({ run: 'quickstart', dir: '/runs' })
    expect(service.volumes).toContain('runs:/runs')
    expect(service.depends_on).toEqual({ kafka: { condition: 'service_healthy' } })
    found.add(options.role!)
  }
  expect([...found].sort()).toEqual(roles.filter(role => role !== 'all').sort())
  const { options: learner } = await parsed(services.learner!.command!)
  expect(learner.engine).toEqual(['local'])
  expect(services.tools!.deploy).toEqual({ replicas: 2 })
})

test('the servers on GPUs are told what the engines ask of them, and write nothing that the others do not see', () => {
  const vllm = services.vllm!
  expect(vllm.profiles).toEqual(['gpu-vllm'])
  expect(vllm.environment!.VLLM_SERVER_DEV_MODE).toBe('1')
  // The flags that docs/engines.md says are needed for training.
  const engines = readFileSync(join(composeRoot, 'docs/engines.md'), 'utf8')
  const flags = (command: string) => new Set(command.match(/--[a-z-]+/g))
  for (const flag of flags(/vllm serve MODEL_DIR[\s\S]*?```/.exec(engines)![0])) expect(vllm.command).toContain(flag)
  const sglang = services.sglang!
  expect(sglang.profiles).toEqual(['gpu-sglang'])
  for (const flag of flags(/sglang\.launch_server[\s\S]*?```/.exec(engines)![0])) expect(sglang.command).toContain(flag)
  for (const server of [vllm, sglang]) {
    expect(server.volumes).toEqual(['runs:/runs'])
    expect(server.ports).toBeUndefined()
    expect(server.deploy!.resources).toEqual({
      reservations: { devices: [{ driver: 'nvidia', count: 1, capabilities: ['gpu'] }] },
    })
  }
})

test('what is published is published on loopback alone, and every image of others is pinned to a version', () => {
  for (const service of Object.values(services)) {
    for (const port of service.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/)
    expect(service.image).toMatch(/:v?\d+\.\d+\.\d+$/)
    expect(service.network_mode ?? 'service:learner').toBe('service:learner')
  }
})

test('what runs code of the model carries the profile that its sandbox needs; the files that are mounted are there', () => {
  for (const name of ['tools', 'verifier']) {
    expect(services[name]!.security_opt).toEqual(['seccomp=./sandbox/seccomp.json', 'apparmor=unconfined'])
  }
  for (const [name, service] of troupes) {
    if (!['tools', 'verifier'].includes(name)) expect(service.security_opt).toBeUndefined()
  }
  expect(existsSync(join(composeRoot, 'sandbox/seccomp.json'))).toBe(true)
  for (const { volumes: mounted = [] } of Object.values(services)) {
    for (const mount of mounted) {
      const source = mount.split(':')[0]!
      if (source.startsWith('.')) expect(existsSync(join(composeRoot, source))).toBe(true)
      else expect(Object.keys(volumes)).toContain(source)
    }
  }
})

test('.env.example names every variable that the file reads, with the value that it has without', () => {
  const lines = readFileSync(join(composeRoot, '.env.example'), 'utf8').split('\n')
  const given = lines.filter(line => /^[A-Z_]+=/.test(line)).map(line => line.split(/=(.*)/).slice(0, 2))
  expect(Object.fromEntries(given)).toEqual(Object.fromEntries(variables))
})

test('the metrics that Prometheus is told to fetch are those that the learner serves', async () => {
  const { options } = await parsed(services.learner!.command!)
  const { scrape_configs } = parse(readFileSync(join(composeRoot, 'deploy/prometheus.yml'), 'utf8'))
  expect(scrape_configs[0].static_configs[0].targets).toEqual([`127.0.0.1:${options.metrics}`])
  expect(services.prometheus!.network_mode).toBe('service:learner')
})

test('the image runs as another user than root, from a pinned base, with what is built in a stage before', () => {
  const lines = readFileSync(join(composeRoot, 'Dockerfile'), 'utf8').split('\n')
  const stages = lines.filter(line => line.startsWith('FROM '))
  expect(stages.map(line => line.replace(/\$\{NODE_IMAGE\}/, 'node'))).toEqual(['FROM node AS build', 'FROM node'])
  expect(lines.find(line => line.startsWith('ARG NODE_IMAGE'))).toMatch(/=node:\d+\.\d+\.\d+-[a-z-]+$/)
  expect(lines.filter(line => line.startsWith('USER '))).toEqual(['USER troupe'])
  const entry = lines.findIndex(line => line.startsWith('ENTRYPOINT'))
  expect(lines.findIndex(line => line.startsWith('USER '))).toBeLessThan(entry)
})
