/**
 * deploy/gpu.env and deploy/gpu.yml, for each of their profiles: every path that a service reads is mounted or in its
 * image, every variable is set, every device is used by one side, and the recipe fits what the file gives it.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { launchCommand } from '../backends/engines/launch/command'
import { estimateOf } from '../cli/dryRun/estimateReport'
import { type RecipeConfig, refuseAtStart } from '../config'
import { devicePlan } from '../config/devicePlan'
import { engineOverrides } from '../config/engineAddress'
import { architectureOf } from '../config/estimate/architecture'
import { refuseUnfit } from '../config/unfit'
import { loadRecipe } from '../recipes/load/loadRecipe'
import { type ComposeService, composeFile, composeOwn, composeRoot, mountsOf, variablesIn } from './support/composeFile'
import { trainCommand } from './support/trainCommand'

const text = (file: string) => readFileSync(join(composeRoot, file), 'utf8')
const forVllm = text('deploy/gpu.env')
/** Settings for SGLang in place of those for vLLM, as a comment of deploy/gpu.env gives them. */
const [, profile, engine] = /For SGLang set COMPOSE_PROFILES=(\S+) and (ENGINE=\S+)/.exec(forVllm)!
const forSglang = forVllm
  .replace(/^COMPOSE_PROFILES=.*/m, `COMPOSE_PROFILES=${profile}`)
  .replace(/^ENGINE=.*/m, engine!)
const kinds = [
  { kind: 'vllm', env: forVllm, other: 'sglang' },
  { kind: 'sglang', env: forSglang, other: 'vllm' },
] as const

const gpusOf = ({ environment }: ComposeService): readonly number[] =>
  String(environment!.CUDA_VISIBLE_DEVICES).split(',').map(Number)
const reserves = ({ deploy }: ComposeService) => deploy?.resources?.reservations.devices

/** Resolves the configuration of the learner's command line. */
async function configOf(learner: ComposeService): Promise<{ readonly config: RecipeConfig; readonly engine: string }> {
  const { recipe, options } = await trainCommand(learner.command!)
  const [address] = options.engine!
  const overrides = [...engineOverrides(options.engine!), ...options.set]
  return { config: loadRecipe(recipe, overrides).config.value, engine: address! }
}

/** `--a 1 --b` as {a: '1', b: ''}. */
function flagsOf(words: readonly (string | number)[]): Readonly<Record<string, string>> {
  const flags: Record<string, string> = {}
  words.map(String).forEach((word, k, all) => {
    const next = all[k + 1]
    if (word.startsWith('--')) flags[word] = next === undefined || next.startsWith('--') ? '' : next
  })
  return flags
}

describe.each(kinds)('with $kind', ({ kind, env, other }) => {
  const { services, volumes, variables, required } = composeFile(env)
  const given = variablesIn(env)
  const { learner, coordinator, inference } = services as Record<string, ComposeService>
  const server = services[kind]!

  test('one server generates, beside the same roles as without GPUs', () => {
    expect(server).toBeDefined()
    expect(services[other]).toBeUndefined()
    const roles = ['coordinator', 'image', 'inference', 'kafka', 'learner', 'scheduler', 'tools', 'verifier']
    expect(Object.keys(services).sort()).toEqual([...roles, kind].sort())
  })

  test('every variable that must be set is set, and every one that is set is read', () => {
    expect([...required].filter(name => given[name] === undefined)).toEqual([])
    const known = new Set<string>([...required, ...variables.keys(), ...composeOwn])
    expect(Object.keys(given).filter(name => !known.has(name))).toEqual([])
    // Without the variables of deploy/gpu.env the files say what to do.
    expect(() => composeFile('COMPOSE_FILE=docker-compose.yml:deploy/gpu.yml')).toThrow(
      /copy deploy\/gpu\.env to \.env/,
    )
  })

  test('every role is of one run, and its learner differs from that without GPUs by its settings alone', async () => {
    const words = await Promise.all(
      ['learner', 'coordinator', 'inference', 'scheduler', 'tools', 'verifier'].map(name =>
        trainCommand(services[name]!.command!),
      ),
    )
    for (const { recipe, options } of words) {
      expect({ recipe, run: options.run, bus: options.bus, dir: options.dir }).toEqual({
        ...{ recipe: given.RECIPE, run: given.RUN, bus: 'kafka://kafka:9092', dir: '/runs' },
      })
    }
    const base = composeFile().services.learner!
    const { options } = await trainCommand(base.command!)
    const { set, engine, run, ...rest } = words[0]!.options
    expect(rest).toEqual({ ...options, set: undefined, engine: undefined, run: undefined })
  })

  test('what computes on GPUs has some, has an image for them, and shares none; nothing else has any', () => {
    const [mine, theirs] = [gpusOf(learner!), gpusOf(server)]
    expect(mine.filter(gpu => theirs.includes(gpu))).toEqual([])
    expect(mine.length + theirs.length).toBe(Number(given.GPUS))
    for (const service of [learner!, server]) {
      expect(reserves(service)).toEqual([{ driver: 'nvidia', count: 'all', capabilities: ['gpu'] }])
      expect(service.environment!.CUDA_DEVICE_ORDER).toBe('PCI_BUS_ID')
    }
    for (const [name, service] of Object.entries(services)) {
      if (service !== learner && service !== server) expect({ name, gpus: reserves(service) }).toEqual({ name })
    }
    const { target, args } = learner!.build!
    const stages = [...text('Dockerfile').matchAll(/^FROM \S+ AS (\S+)/gm)].map(([, stage]) => stage)
    for (const { build } of Object.values(services)) if (build !== undefined) expect(stages).toContain(build.target)
    expect(target).toBe('cuda')
    expect(args.TORCH_INDEX).not.toMatch(/\bcpu\b/)
    // Another tag, since the other roles keep the image for CPUs, of the same version.
    expect(learner!.image).toBe(`${inference!.image}-cuda`)
  })

  test('the model is one directory of the host, under one path, for all that read it', async () => {
    const { config } = await configOf(learner!)
    if (config.model.from !== 'directory') throw new Error('the recipe makes its own model: a server cannot serve it')
    const { path, template } = config.model
    for (const service of [learner!, coordinator!, inference!, server]) {
      expect(mountsOf(service)).toContainEqual({ source: given.MODEL_DIR, target: path, isReadOnly: true })
    }
    const { command = [] } = server
    expect(kind === 'vllm' ? command[0] : command[command.indexOf('--model-path') + 1]).toBe(path)
    // The template is a file of the package, which the image holds.
    expect(template!.startsWith(join(composeRoot, 'recipes/'))).toBe(true)
  })

  test('every other path that a service reads is below a mount, and weights are read where the learner writes them', async () => {
    const { config } = await configOf(learner!)
    const { file, evaluationFile } = config.data as { file: string; evaluationFile: string }
    for (const read of [file, evaluationFile]) {
      const [mount, ...more] = mountsOf(learner!).filter(({ target }) => read.startsWith(`${target}/`))
      expect({ mount, more }).toEqual({
        mount: { source: given.DATA_DIR, target: '/data', isReadOnly: true },
        more: [],
      })
    }
    expect(mountsOf(learner!)).toContainEqual({ source: 'runs', target: '/runs', isReadOnly: false })
    expect(mountsOf(server)).toContainEqual({ source: 'runs', target: '/runs', isReadOnly: true })
    for (const service of Object.values(services)) {
      const mounts = mountsOf(service)
      for (const { source } of mounts) {
        const isOwn = source.startsWith('./')
        const isInput = [given.MODEL_DIR, given.DATA_DIR].includes(source)
        expect(isInput || (isOwn ? existsSync(join(composeRoot, source)) : source in volumes)).toBe(true)
      }
      if (!service.image.startsWith('troupe:') && service !== server) continue
      for (const word of service.command!.map(String)) {
        const [path] = /(?<=^|=)\/\S*$/.exec(word) ?? []
        const isThere = path === undefined || mounts.some(({ target }) => `${path}/`.startsWith(`${target}/`))
        expect({ word, isThere }).toEqual({ word, isThere: true })
      }
    }
    // A directory that Docker would make in place of a missing one is empty.
    for (const volume of [learner!, server].flatMap(service => service.volumes!)) {
      if (typeof volume !== 'string') expect(volume.bind).toEqual({ create_host_path: false })
    }
  })

  test('the recipe exists, fits these GPUs by its estimate, and has heads that servers have kernels for', async () => {
    const { config } = await configOf(learner!)
    expect(() => [refuseAtStart(config), refuseUnfit(config)]).not.toThrow()
    const { hardware, estimated } = estimateOf(config)
    expect({ gpus: hardware.gpus, faults: estimated.faults }).toEqual({ gpus: Number(given.GPUS), faults: [] })
    // The learner's process sees its own GPUs alone, counted from 0; the engines are not its to place.
    const mine = gpusOf(learner!)
    const plan = devicePlan(config, { gpus: mine.length, engines: 0, ranks: config.train.ranks / config.train.nodes })
    expect(plan).toEqual({ kind: 'split', engines: [], trainer: mine.map((_, k) => k) })
    const { hidden_size, num_attention_heads, head_dim } = architectureOf(config) as Record<string, number>
    // docs/engines.md: heads of other sizes, such as the quickstart's 24, cannot be served.
    expect([64, 80, 96, 112, 128, 256]).toContain(head_dim ?? hidden_size! / num_attention_heads!)
  })

  test('the server has the flags that the recipe would start its own server with, and is reached under its name', async () => {
    const { config, engine } = await configOf(learner!)
    const place = {
      modelDirectory: '/model',
      architecture: architectureOf(config),
      port: 1,
      token: '',
      vllmPython: undefined,
    }
    const { command } = launchCommand({ ...config, engine: { ...config.engine, urls: [] } }, place)
    const { '--served-model-name': _, '--api-key': __, '--host': ___, '--port': ____, ...own } = flagsOf(command)
    const { '--host': host, '--port': port, ...flags } = flagsOf(server.command!)
    expect(flags).toEqual(own)
    expect({ host, engine }).toEqual({ host: '0.0.0.0', engine: `${kind}:http://${kind}:${port}` })
    expect(server.ports).toBeUndefined()
    expect(server.environment).toMatchObject({ HF_HUB_OFFLINE: '1' })
    if (kind === 'vllm') expect(server.environment!.VLLM_SERVER_DEV_MODE).toBe('1')
    expect(gpusOf(server).length).toBe(Number(flags[kind === 'vllm' ? '--tensor-parallel-size' : '--tp-size']))
    expect(inference!.depends_on).toEqual({
      image: { condition: 'service_completed_successfully' },
      kafka: { condition: 'service_healthy' },
      vllm: { condition: 'service_healthy', required: false },
      sglang: { condition: 'service_healthy', required: false },
    })
    expect(server.image).toMatch(/:v\d+\.\d+\.\d+$/)
  })
})
