/**
 * Serves a run's weights over HTTP, for engines on hosts that do not see the learner's directory.
 *
 * in   GET PATH/files.json, GET PATH/NAME (ranges, RFC 9110 §14), PATH below the run's `weights` or `checkpoints`
 * out  names and sizes of the files of a version, or of its adapters (PATH/adapter); their bytes
 * Invariant: only a model's files are served: no optimizer state, nothing whose name begins with a dot, nothing behind
 * a symbolic link, be it the file or the version's directory. On a loopback address, the Host header of a request must
 * name a loopback address. If there is a token (TROUPE_WEIGHTS_TOKEN), every request must carry it; without one, the
 * server listens on loopback only.
 */
import { readdir, realpath, stat } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join, relative, sep } from 'node:path'
import send from 'send'
import { TroupeError } from '../../runtime/errors'
import { knowSecret } from '../../runtime/secrets/knownSecrets'
import { boundedServer } from '../../sandbox/http/boundedServer'
import { hostCheck } from '../../sandbox/http/hostHeader'
import { requestTarget } from '../../sandbox/http/requestTarget'
import { bearerCheck, type TokenCheck } from '../../sandbox/judge/bearerToken'
import { isLoopback } from '../../sandbox/loopback'
import { optimizerFile } from './manifest'
import { adapterFolder, listName, plainName, type WeightFile } from './weightList'

export interface WeightServer {
  /** Returns the URL of a directory of weights below the run's directory. */
  urlOf(directory: string): string
  close(): Promise<void>
}

export interface ServeWeightsOptions {
  /** Directory of the run, whose `weights` and `checkpoints` are served. */
  readonly root: string
  /** HOST:PORT at which engines reach the server; port 0 takes a free one. */
  readonly address: string
  /** Bearer token that requests must carry. Default: the value of TROUPE_WEIGHTS_TOKEN. */
  readonly token?: string | undefined
}

/**
 * Checks the address before anything is opened. @throws TroupeError cli.wrong_usage if it is not HOST:PORT, or not an
 * address that other hosts can reach; engine.unsafe_bind if it is not a loopback address and there is no token
 */
export function weightAddress(address: string, token = process.env.TROUPE_WEIGHTS_TOKEN) {
  const { host, port } = parsed(address)
  refuseUnsafe(host, address, token)
  return { host, port }
}

/**
 * Starts the server. @throws TroupeError cli.wrong_usage and engine.unsafe_bind as `weightAddress`;
 * engine.weights_not_served if the address cannot be listened on
 */
export async function serveWeights({
  root,
  address,
  token = process.env.TROUPE_WEIGHTS_TOKEN,
}: ServeWeightsOptions): Promise<WeightServer> {
  const { host, port } = weightAddress(address, token)
  const mayCome = (token ?? '') === '' ? () => true : bearerCheck(knowSecret(token!))
  const isOurs = hostCheck(host)
  const server = boundedServer((request, response) =>
    isOurs(request.headers.host) ? answer(root, mayCome, request, response) : end(response, 421),
  )
  await new Promise<void>((done, fail) => {
    server.once('error', fail)
    server.listen(port, host, done)
  }).catch(cause => {
    throw new TroupeError('engine.weights_not_served', {
      boundary: 'engine',
      retriable: false,
      message: `cannot serve weights on ${address}: ${(cause as Error).message}`,
      hint: 'give --serve-weights an address of this machine and a free port',
      cause,
    })
  })
  const bound = (server.address() as AddressInfo).port
  return {
    urlOf(directory) {
      const path = relative(root, directory).split(sep).map(encodeURIComponent).join('/')
      return `http://${host.includes(':') ? `[${host}]` : host}:${bound}/${path}`
    },
    async close() {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

const paths = new RegExp(`^/(weights|checkpoints)/(\\w[\\w.-]*)/(?:(${adapterFolder})/)?(\\w[\\w.-]*)$`)

async function answer(
  root: string,
  mayCome: TokenCheck,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (request.method !== 'GET' && request.method !== 'HEAD') return end(response, 405)
  if (!mayCome(request.headers.authorization)) return end(response, 401)
  const match = paths.exec(requestTarget(request.url).path)
  if (match === null) return end(response, 404)
  const [, kind = '', version = '', below = '', name = ''] = match
  const directory = await unlinked(join(root, kind), join(version, below))
  const files = directory === undefined ? [] : await filesOf(directory)
  if (name === listName && files.length > 0) {
    response.setHeader('Content-Type', 'application/json')
    response.end(JSON.stringify(files))
  } else if (directory !== undefined && files.some(file => file.name === name)) {
    send(request, name, { root: directory, dotfiles: 'deny', index: false })
      .on('error', (error: { readonly status?: number }) => end(response, error.status ?? 500))
      .pipe(response)
  } else end(response, 404)
}

/** Returns the directory of a version; undefined if it is gone, or if a symbolic link leads to it. */
async function unlinked(folder: string, version: string): Promise<string | undefined> {
  try {
    // The operator may have moved `weights` as a whole to another disk, behind a link; nothing in it may be a link.
    const wanted = join(await realpath(folder), version)
    return (await realpath(wanted)) === wanted ? wanted : undefined
  } catch {
    return undefined
  }
}

/** Lists the files of a version; an empty list if the version was removed. */
async function filesOf(directory: string): Promise<readonly WeightFile[]> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => [])
  const isModels = ({ name }: { readonly name: string }) => plainName.test(name) && name !== optimizerFile
  const names = entries.filter(entry => entry.isFile() && isModels(entry)).map(entry => entry.name)
  return Promise.all(names.sort().map(async name => ({ name, bytes: (await stat(join(directory, name))).size })))
}

function refuseUnsafe(host: string, address: string, token: string | undefined): void {
  const common = { boundary: 'engine', retriable: false } as const
  if (/^(0\.0\.0\.0|::|0:0:0:0:0:0:0:0)$/.test(host)) {
    throw new TroupeError('cli.wrong_usage', {
      ...{
        boundary: 'cli',
        retriable: false,
        message: `--serve-weights '${address}' is not an address that other hosts can reach`,
      },
      hint: 'give the address at which the hosts of engines reach this host',
    })
  }
  if (isLoopback(host) || (token ?? '') !== '') return
  throw new TroupeError('engine.unsafe_bind', {
    ...common,
    message: `cannot serve weights on ${address} without a token: every host that reaches it could download them`,
    hint: 'set TROUPE_WEIGHTS_TOKEN for the learner and the engines, or serve on a loopback address',
  })
}

function end(response: ServerResponse, status: number): void {
  if (response.headersSent) response.destroy()
  else response.writeHead(status).end()
}

function parsed(address: string): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([^\]]+)\]|([^:/\s]+)):(\d{1,5})$/.exec(address)
  const port = Number(match?.[3])
  if (match !== null && port < 65_536) return { host: (match[1] ?? match[2])!, port }
  throw new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: `--serve-weights '${address}' is not HOST:PORT with a port of 0 to 65535`,
    hint: 'give the address at which the hosts of engines reach this host: --serve-weights 10.0.0.1:8900',
  })
}
