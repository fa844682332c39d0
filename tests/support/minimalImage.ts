/**
 * An unpacked image of a few megabytes, made of this machine's own shell and tools with the libraries that they load.
 *
 * in   a store's directory        out  the image `minimal` in it, and in a Docker engine
 */
import { execFileSync, spawn } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readdirSync, realpathSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Engine } from '../../environments/docker/engine'
import { imageDirectory, openStore } from '../../environments/drivers/store'

const tools = [
  'sh',
  'bash',
  'cat',
  'ls',
  'id',
  'sleep',
  'head',
  'mkdir',
  'rm',
  'touch',
  'ln',
  'mv',
  'cp',
  'chmod',
  'dd',
  'env',
  'stat',
  'grep',
  'sed',
  'tail',
  'wc',
  'find',
  'mknod',
  'sort',
  'seq',
  'mount',
  'kill',
  'true',
  'tar',
  'gzip',
  'chown',
]

export function makeMinimalImage(directory: string): string {
  const image = imageDirectory(openStore(directory), 'minimal')
  const root = join(image, 'rootfs')
  for (const path of [
    'bin',
    'dev',
    'etc',
    'home/agent',
    'proc',
    'root',
    'sys',
    'tmp',
    'var',
    'app',
    'logs/verifier',
    'logs/agent',
  ])
    mkdirSync(join(root, path), { recursive: true })
  for (const tool of tools) {
    const path = execFileSync('sh', ['-c', `PATH=/usr/bin:/bin command -v ${tool}`], { encoding: 'utf8' }).trim()
    const real = path.startsWith('/') ? path : `/usr/bin/${tool}`
    cpSync(realpathSync(real), join(root, 'bin', tool))
    copyLibraries(root, real)
  }
  execFileSync('chmod', ['1777', join(root, 'tmp')])
  execFileSync('chown', ['1000:1000', join(root, 'home/agent')])
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n')
  writeFileSync(join(root, 'etc/group'), 'root:x:0:\nagent:x:1000:\nstaff:x:50:agent\n')
  writeFileSync(join(image, 'image.json'), JSON.stringify({ env: { FROM_IMAGE: 'yes' }, workdir: '/app' }))
  return 'minimal'
}

/** Copies the libraries that a program or a library of this machine loads into an image's root. */
export function copyLibraries(root: string, file: string): void {
  const libraries = execFileSync('ldd', [file], { encoding: 'utf8' }).matchAll(/(\/\S+\.so\S*)/g)
  for (const [library] of libraries) {
    const target = join(root, library)
    if (existsSync(target)) continue
    mkdirSync(dirname(target), { recursive: true })
    cpSync(realpathSync(library), target)
  }
}

/** Imports the image that `makeMinimalImage` made in `directory` into a Docker engine. */
export async function importMinimal(engine: Engine, directory: string): Promise<void> {
  const words = ['-C', join(directory, 'images/minimal/rootfs'), '--create', '.']
  const tar = spawn('tar', words, { stdio: ['ignore', 'pipe', 'inherit'] })
  const query = { fromSrc: '-', repo: 'minimal', changes: 'WORKDIR /app' }
  await engine.call('POST', '/images/create', { query, stream: tar.stdout })
}

/** Removes the image `minimal` from a Docker engine, and the snapshots that drivers with `directory` made. */
export async function removeImages(engine: Engine, directory: string): Promise<void> {
  const snapshots = readdirSync(join(directory, 'docker'))
    .filter(file => file.endsWith('.json'))
    .map(file => `troupe-snapshot:${file.replace('.json', '')}`)
  for (const image of [...snapshots, 'minimal'])
    await engine.call('DELETE', `/images/${image}`, { query: { force: 1 } })
}
