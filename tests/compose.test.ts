/** docker-compose.yml and what goes with it: every promise of the file that can be checked without Docker. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { parse } from 'yaml'
import { roles } from '../actors/run/run'
import { composeFile, composeRoot, mountsOf, variablesIn } from './support/composeFile'
import { trainCommand } from './support/trainCommand'

// Set-up runs before any package is there, so it is plain JavaScript.
const { places } = require('../cli/setup/places')
const environments = require('../cli/setup/environments')

const { services, volumes, variables, required } = composeFile()
const { image: built, ...running } = services
const troupes = Object.entries(running).filter(([, service]) => service.image.startsWith('troupe:'))

test('every service of ours is a command line that the program takes, for one run on one bus, and every role is there', async () => {
  const found = new Set<string>()
  for (const [name, service] of troupes) {
    const { recipe, options } = await trainCommand(service.command!)
    expect({ name, recipe, role: options.role, bus: options.bus }).toEqual({
      ...{ name, recipe: 'quickstart', role: name, bus: 'kafka://kafka:9092' },
    })
    expect(options).toMatchObject({ run: 'quickstart', dir: '/runs' })
    expect(service.volumes).toContain('runs:/runs')
    expect(service.depends_on).toEqual({
      image: { condition: 'service_completed_successfully' },
      kafka: { condition: 'service_healthy' },
    })
    found.add(options.role!)
  }
  expect([...found].sort()).toEqual(roles.filter(role => role !== 'all').sort())
  const { options: learner } = await trainCommand(services.learner!.command!)
  expect(learner.engine).toEqual(['local'])
  expect(services.tools!.deploy).toEqual({ replicas: 2 })
})

test("Kafka's health check starts no JVM: it succeeds where something listens, and fails where nothing does", async () => {
  const [kind, ...words] = services.kafka!.healthcheck!.test
  expect([kind, words[0]]).toEqual(['CMD', 'bash'])
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const check = async () => {
    const [program = '', ...rest] = words.map(word => word.replace('9094', String(port)))
    const [code] = await once(spawn(program, rest, { stdio: 'ignore' }), 'exit')
    return code
  }
  expect(await check()).toBe(0)
  await new Promise(resolve => server.close(resolve))
  expect(await check()).not.toBe(0)
})

test('what is published is published on loopback alone, and every image of others is pinned to a version', () => {
  for (const service of Object.values(services)) {
    for (const port of service.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/)
    expect(service.image).toMatch(/:v?\d+\.\d+\.\d+$/)
    // A service in another's network loses it when the other is restarted.
    expect(service.network_mode).toBeUndefined()
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
  for (const mounted of Object.values(services).map(mountsOf)) {
    for (const { source } of mounted) {
      if (source.startsWith('.')) expect(existsSync(join(composeRoot, source))).toBe(true)
      else expect(Object.keys(volumes)).toContain(source)
    }
  }
})

test('.env.example names every variable that the file reads, with the value that it has without', () => {
  const given = variablesIn(readFileSync(join(composeRoot, '.env.example'), 'utf8'))
  expect(given).toEqual(Object.fromEntries(variables))
  expect(required.size).toBe(0)
})

test('the metrics that Prometheus is told to fetch are those that the learner serves', async () => {
  const { options } = await trainCommand(services.learner!.command!)
  const { scrape_configs } = parse(readFileSync(join(composeRoot, 'deploy/prometheus/prometheus.yml'), 'utf8'))
  const { host, port } = options.metrics!
  expect(host).toBe('0.0.0.0')
  expect(scrape_configs[0].static_configs[0].targets).toEqual([`learner:${port}`])
  const source = parse(readFileSync(join(composeRoot, 'deploy/grafana/datasource.yml'), 'utf8')).datasources[0]
  expect(services.prometheus!.ports).toEqual([`127.0.0.1:9090:${new URL(source.url).port}`])
  expect(new URL(source.url).hostname).toBe('prometheus')
})

test('the image runs as another user than root, from a pinned base, with what is built in a stage before', () => {
  const lines = readFileSync(join(composeRoot, 'Dockerfile'), 'utf8').split('\n')
  const stages = lines.filter(line => line.startsWith('FROM '))
  expect(stages.map(line => line.replace(/\$\{NODE_IMAGE\}/, 'node'))).toEqual([
    'FROM node AS venv',
    'FROM venv AS build',
    'FROM node AS runtime',
    'FROM runtime AS cpu',
    'FROM runtime AS cuda',
    'FROM cpu',
  ])
  expect(lines.find(line => line.startsWith('ARG NODE_IMAGE'))).toMatch(/=node:\d+\.\d+\.\d+-[a-z-]+$/)
  expect(lines.filter(line => line.startsWith('USER '))).toEqual(['USER troupe'])
  const entry = lines.findIndex(line => line.startsWith('ENTRYPOINT'))
  expect(lines.findIndex(line => line.startsWith('USER '))).toBeLessThan(entry)
})

test('the image is built once, and whoever runs it waits for that and never asks a registry for it', () => {
  expect(built!.build!.target).toBe('cpu')
  for (const [name, service] of troupes) {
    expect({ name, build: service.build, image: service.image }).toEqual({ name, image: built!.image })
    expect(service.pull_policy).toBe('never')
  }
  const base = /^ARG NODE_IMAGE=(.*)$/m.exec(readFileSync(join(composeRoot, 'Dockerfile'), 'utf8'))![1]
  expect(built!.build!.args.NODE_IMAGE).toBe(base)
})

test('what `setup environments` makes lies in a volume that its user may write and that every service sees', () => {
  const [, runtime] = readFileSync(join(composeRoot, 'Dockerfile'), 'utf8').split(/^FROM .*(?= AS runtime)/m)
  const [, words] = /^ENV (.*)/m.exec(runtime!)!
  const env = Object.fromEntries(words!.split(' ').map(word => word.split('=')))
  const where = places(env, '/opt/troupe')
  expect(/^VOLUME (\S+)/m.exec(runtime!)![1]).toBe('/runs')
  expect(runtime).toContain('install -d -o troupe -g troupe /runs')
  expect(runtime).toMatch(/apt-get install .* python3-venv /)
  for (const path of [where.logs, where.lock, environments.step(where).venv]) expect(path).toMatch(/^\/runs\//)
  for (const [, service] of troupes) {
    expect(mountsOf(service)).toContainEqual({ source: 'runs', target: '/runs', isReadOnly: false })
  }
})
