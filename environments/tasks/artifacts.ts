/**
 * Copies a step's artifacts: files that the agent leaves for a separate verifier, or for the user.
 *
 * in   the environment in which the agent worked
 * out  its artifacts in another environment, or below a directory of this machine
 * Invariant: as in Harbor, `/logs/artifacts` is always an artifact, an artifact that cannot be downloaded is left out,
 * and `exclude` has patterns of `tar --exclude` for directories. In the verifier's environment every artifact has the
 * path that it had in the agent's: `destination` applies only below a directory of this machine.
 */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { endedHow } from '../../runtime/errors'
import type { Environment } from '../drivers/driver'
import { environmentError } from '../drivers/errors'
import { ofStep, type Task, type TaskStep } from './task'

const conventional = '/logs/artifacts'

interface Artifact {
  readonly source: string
  readonly exclude: readonly string[]
  readonly destination?: string | undefined
}

function artifactsOf(task: Task, step: TaskStep): readonly Artifact[] {
  const own = ofStep(task, step)?.artifacts ?? []
  const listed: Artifact[] = [...task.config.artifacts, ...own]
  // If several entries name one source, the last counts, so an entry for `conventional` replaces the default one.
  return [...new Map([{ source: conventional, exclude: [] }, ...listed].map(one => [one.source, one])).values()]
}

/** Copies the artifacts, which are all that a separate verifier sees of the agent's work, to the same places. */
export async function moveArtifacts(task: Task, step: TaskStep, from: Environment, to: Environment): Promise<void> {
  await eachArtifact(artifactsOf(task, step), from, async (file, { source }) => to.upload(file, source))
}

/** Copies the artifacts below `directory`: each to its `destination`, else to its path in the environment. */
export async function collectArtifacts(
  task: Task,
  step: TaskStep,
  from: Environment,
  directory: string,
): Promise<void> {
  await eachArtifact(artifactsOf(task, step), from, async (file, { source, destination }) => {
    const place = join(directory, destination ?? source)
    mkdirSync(dirname(place), { recursive: true })
    cpSync(file, place, { recursive: true, verbatimSymlinks: true })
  })
}

async function eachArtifact(
  artifacts: readonly Artifact[],
  from: Environment,
  copy: (file: string, artifact: Artifact) => Promise<void>,
): Promise<void> {
  const place = mkdtempSync(join(tmpdir(), 'troupe-artifacts-'))
  try {
    for (const [at, artifact] of artifacts.entries()) {
      const file = join(place, String(at))
      const isThere = await from.download(artifact.source, file).then(
        () => true,
        () => false,
      )
      if (!isThere) continue
      const isDirectory = statSync(file, { throwIfNoEntry: false })?.isDirectory() === true
      const kept = artifact.exclude.length > 0 && isDirectory ? without(file, artifact.exclude) : file
      await copy(kept, artifact)
    }
  } finally {
    rmSync(place, { recursive: true, force: true })
  }
}

/** Copies the directory without the paths that match one of the patterns (tar's --exclude). Returns the copy's path. */
function without(directory: string, exclude: readonly string[]): string {
  const copy = `${directory}.kept`
  mkdirSync(copy)
  const options = exclude.map(pattern => `--exclude=${pattern}`)
  const packed = spawnSync('tar', ['-C', directory, ...options, '-cf', `${copy}.tar`, '.'])
  const unpacked = spawnSync('tar', ['-C', copy, '-xpf', `${copy}.tar`])
  for (const { status, signal, error, stderr } of [packed, unpacked])
    if (status !== 0) {
      const how = error?.message ?? endedHow(status, signal)
      const said = String(stderr ?? '').trim()
      const why = `the artifacts in ${directory} were not copied: tar ${how}${said === '' ? '' : `: ${said}`}`
      throw environmentError('environment.transfer_failed', why)
    }
  return copy
}
