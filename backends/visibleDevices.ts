/**
 * Finds the GPUs that this process may use.
 *
 * in   the device files of GPU drivers, CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, torch
 * out  names of GPUs, as those variables take them
 * Invariant: a GPU is listed only if torch can use it, so a torch for CPUs lists none. Without a GPU driver, torch is
 * not asked: importing it takes seconds.
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { promisify } from 'node:util'
import { TroupeError } from '../runtime/errors'
import { failedHow, torchPythonPath } from '../runtime/python'
import { retryKilled } from '../sandbox/retryKilled'

/** Device files of NVIDIA's driver, of the GPU driver in WSL (Windows Subsystem for Linux), and of AMD's driver. */
const driverFiles = ['/dev/nvidiactl', '/dev/dxg', '/dev/kfd']

/** True where a GPU's driver is installed; whether torch can use it is another question. */
export const hasGpuDriver = (): boolean => driverFiles.some(file => existsSync(file))

/** Upper bound on the import of torch and the start of its driver, in milliseconds. */
const askMs = 120_000

/**
 * Name of the environment variable that limits a process to GPUs: that of AMD's runtime if it is set, else NVIDIA's.
 */
export const visibleVariable = (env: NodeJS.ProcessEnv = process.env): string =>
  env.HIP_VISIBLE_DEVICES === undefined ? 'CUDA_VISIBLE_DEVICES' : 'HIP_VISIBLE_DEVICES'

/**
 * Lists the GPUs. @throws TroupeError process.no_devices if torch does not say how many there are, process.no_python if
 * there is no venv, process.no_torch if it lacks torch
 */
export async function visibleDevices(
  env: NodeJS.ProcessEnv = process.env,
  hasDriver = hasGpuDriver(),
): Promise<readonly string[]> {
  const named = env[visibleVariable(env)]
  if (!hasDriver || named?.trim() === '') return []
  const script = 'import torch; print(torch.cuda.device_count())'
  const python = torchPythonPath(env)
  const ask = () => promisify(execFile)(python, ['-c', script], { env, timeout: askMs })
  const count = await retryKilled(ask).then(
    ({ stdout }) => Number(stdout.trim()),
    thrown => {
      throw new TroupeError('process.no_devices', {
        boundary: 'process',
        retriable: false,
        message: `torch could not count this machine's GPUs: ${failedHow(thrown, askMs)}`,
        hint: `set ${visibleVariable(env)} to an empty text to run on the CPU`,
        cause: thrown,
      })
    },
  )
  const names = named?.split(',').map(name => name.trim()) ?? Array.from({ length: count }, (_, k) => String(k))
  return names.slice(0, count)
}
