/**
 * The schema of task.toml in Harbor's task format (harbor 0.25, schema_version 1.4), with Harbor's defaults.
 *
 * in   a parsed TOML document        out  TaskToml, or zod's issues
 * Invariant: a document that Harbor accepts is accepted with the same meaning. As in Harbor, unknown fields are
 * ignored; `unknownFields` (unknownFields.ts) lists them for `troupe tasks check`. Names of fields are Harbor's own.
 */
import { z } from 'zod'

const seconds = z.number()
const user = z.union([z.string(), z.number().int()]).optional()
const variables = z.record(z.string(), z.string()).default({})
const networkMode = z.enum(['no-network', 'public', 'allowlist'])

/** Network policy of a phase. Without `network_mode` the environment's policy applies. */
const network = { network_mode: networkMode.optional(), allowed_hosts: z.array(z.string()).optional() }

const hostsFault = ({ network_mode, allowed_hosts }: { network_mode?: string | undefined; allowed_hosts?: unknown }) =>
  allowed_hosts === undefined ||
  network_mode === 'allowlist' ||
  (Array.isArray(allowed_hosts) && allowed_hosts.length === 0)
const hostsMessage = { path: ['allowed_hosts'], message: "is only valid with network_mode = 'allowlist'" }

export const healthcheck = z.object({
  command: z.string(),
  interval_sec: seconds.default(5),
  timeout_sec: seconds.default(30),
  start_period_sec: seconds.default(0),
  start_interval_sec: seconds.default(5),
  retries: z.number().int().default(3),
})

const mcpServer = z
  .object({
    name: z.string(),
    transport: z.preprocess(
      value => (value === 'http' ? 'streamable-http' : value),
      z.enum(['stdio', 'sse', 'streamable-http']).default('sse'),
    ),
    url: z.string().optional(),
    command: z.string().optional(),
    args: z.array(z.string()).default([]),
    headers: z.record(z.string(), z.string()).default({}),
  })
  .refine(({ transport, command }) => transport !== 'stdio' || command, {
    path: ['command'],
    message: 'is required for transport stdio',
  })
  .refine(({ transport, url }) => transport === 'stdio' || url, {
    path: ['url'],
    message: 'is required for this transport',
  })

/** Size such as `2G`, `512M` or `64K`, in the deprecated fields `memory` and `storage`; converted to MiB. */
const size = z.string().transform((text, ctx) => {
  const found = /^\s*([\d.]+)\s*([GMK])\s*$/i.exec(text)
  const factor = { G: 1024, M: 1, K: 1 / 1024 }[found?.[2]?.toUpperCase() ?? '']
  if (found && factor !== undefined) return Math.trunc(Number(found[1]) * factor)
  ctx.addIssue({ code: 'custom', message: `must be a size such as '1G' or '512M', not '${text}'` })
  return z.NEVER
})

const mib = z.number().int()
export const environment = z
  .object({
    ...network,
    build_timeout_sec: seconds.default(600),
    docker_image: z.string().optional(),
    os: z.preprocess(
      value => (typeof value === 'string' ? value.toLowerCase() : value),
      z.enum(['linux', 'windows']).default('linux'),
    ),
    cpus: z.number().min(0.01).optional(), // the kernel accepts no smaller quota
    memory_mb: mib.optional(),
    storage_mb: mib.optional(),
    memory: size.optional(),
    storage: size.optional(),
    gpus: z.number().int().optional(),
    gpu_types: z.array(z.string()).optional(),
    tpu: z.object({ type: z.string(), topology: z.string() }).optional(),
    mcp_servers: z.array(mcpServer).default([]),
    env: variables,
    skills_dir: z.string().optional(),
    healthcheck: healthcheck.optional(),
    workdir: z.string().optional(),
    allow_internet: z.boolean().optional(),
  })
  .refine(hostsFault, hostsMessage)
  .transform(({ memory, storage, allow_internet, ...rest }, ctx) => {
    for (const [name, old, now] of [
      ['memory', memory, rest.memory_mb],
      ['storage', storage, rest.storage_mb],
    ] as const)
      if (old !== undefined && now !== undefined && old !== now)
        ctx.addIssue({ code: 'custom', path: [name], message: `is ${old} MiB and contradicts ${name}_mb = ${now}` })
    const legacy =
      allow_internet === undefined ? undefined : allow_internet ? ('public' as const) : ('no-network' as const)
    const mode = rest.network_mode ?? (rest.allowed_hosts === undefined ? legacy : undefined)
    return {
      ...rest,
      memory_mb: rest.memory_mb ?? memory,
      storage_mb: rest.storage_mb ?? storage,
      // `public` is Harbor's default. `saysNetwork` is false if neither network_mode nor allow_internet is set.
      network_mode: mode ?? ('public' as const),
      saysNetwork: mode !== undefined,
      /** False: the user runs the task without its limit on disk space (overrides.ts). */
      limitsStorage: true as boolean,
    }
  })

const agent = z.object({ ...network, timeout_sec: seconds.optional(), user }).refine(hostsFault, hostsMessage)

const service = z.string().regex(/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/, 'must be the name of a compose service')
const collect = z.object({
  command: z.string(),
  service: service.default('main'),
  timeout_sec: seconds.default(60),
  user,
})

const verifier = z
  .object({
    ...network,
    timeout_sec: seconds.default(600),
    env: variables,
    user,
    environment_mode: z.enum(['shared', 'separate']).optional(),
    environment: environment.optional(),
    collect: z.array(collect).default([]),
  })
  .refine(hostsFault, hostsMessage)
  .refine(({ environment_mode, environment: own }) => environment_mode !== 'shared' || own === undefined, {
    path: ['environment'],
    message: "contradicts environment_mode = 'shared'",
  })

const climbs = (path: string) => path.split('/').includes('..')
const artifact = z.union([
  z
    .string()
    .refine(path => !climbs(path), "must not contain '..'")
    .transform(source => ({ source, exclude: [] as string[] })),
  z.object({
    source: z.string().refine(path => !climbs(path), "must not contain '..'"),
    destination: z
      .string()
      .refine(
        path => !climbs(path) && !path.startsWith('/') && !path.includes('\\'),
        "must be a relative path without '..'",
      )
      .refine(path => path.replace(/\/$/, '') !== 'manifest.json', "'manifest.json' is the list of what was collected")
      .optional(),
    exclude: z.array(z.string()).default([]),
    service: service.optional(),
  }),
])

const stepName = z
  .string()
  .refine(
    name =>
      name.trim() !== '' && !/[<>:"/\\|?*\p{Cc}]/u.test(name) && !/[. ]$/.test(name) && Buffer.byteLength(name) <= 255,
    'must be a portable name of one directory',
  )
const step = z.object({
  name: stepName,
  agent: agent.prefault({}),
  verifier: verifier.prefault({}),
  min_reward: z.union([z.number(), z.record(z.string(), z.number())]).optional(),
  healthcheck: healthcheck.optional(),
  artifacts: z.array(artifact).default([]),
})

const packageName = /^[a-zA-Z0-9][\w.-]*\/[a-zA-Z0-9][\w.-]*$/
const packageInfo = z.object({
  name: z.string().regex(packageName, "must be 'org/name'"),
  version: z.string().min(1).optional(),
  description: z.string().default(''),
  authors: z.array(z.object({ name: z.string(), email: z.string().optional() })).default([]),
  keywords: z.array(z.string()).default([]),
})

export const taskToml = z
  .object({
    schema_version: z.string().default('1.4'),
    task: packageInfo.optional(),
    metadata: z.record(z.string(), z.unknown()).default({}),
    verifier: verifier.prefault({}),
    agent: agent.prefault({}),
    environment: environment.prefault({}),
    solution: z.object({ env: variables }).prefault({}),
    source: z.string().optional(),
    multi_step_reward_strategy: z.enum(['mean', 'final']).optional(),
    steps: z.array(step).optional(),
    artifacts: z.array(artifact).default([]),
  })
  .superRefine(({ steps = [] }, ctx) => {
    const keys = steps.map(({ name }) => name.normalize('NFC').toLowerCase())
    const at = keys.findIndex((key, i) => keys.indexOf(key) < i)
    if (at >= 0)
      ctx.addIssue({ code: 'custom', path: ['steps', at, 'name'], message: `'${steps[at]?.name}' is used twice` })
  })

export type TaskToml = z.output<typeof taskToml>
export type EnvironmentToml = TaskToml['environment']
export type McpServerToml = z.output<typeof mcpServer>
export type HealthcheckToml = z.output<typeof healthcheck>
