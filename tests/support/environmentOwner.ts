/** Starts a process that owns environments of a driver, and lists the containers of environments in a Docker engine. */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { Engine, engineAddress } from '../../environments/docker/engine'
import type { DriverName, EnvironmentSpec } from '../../environments/drivers/driver'

/** Starts a process that starts two environments under the run name `killed` and runs `sleep 4711` in each. */
export async function environmentOwner(
  name: DriverName,
  directory: string,
  spec: EnvironmentSpec,
): Promise<ChildProcess> {
  const file = name === 'docker' ? 'docker/dockerDriver' : `drivers/${name}`
  const program = `
    const { ${name}Driver } = require(${JSON.stringify(join(__dirname, '../../environments', file))})
    const { systemEffects } = require(${JSON.stringify(join(__dirname, '../../runtime/effects'))})
    const driver = ${name}Driver({ run: 'killed', epoch: 1, fx: systemEffects, directory: ${JSON.stringify(directory)} })
    const spec = ${JSON.stringify(spec)}
    Promise.all([driver.start(spec), driver.start(spec)]).then(async all => {
      for (const one of all) one.exec({ command: 'sleep 4711', timeoutMs: 100000 }).catch(() => {})
      setTimeout(() => console.log('ready'), 500)
    })`
  const register = join(__dirname, '../../cli/register.js')
  const owner = spawn(process.execPath, ['-r', register, '-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  await new Promise(resolve => owner.stdout.once('data', resolve))
  return owner
}

export async function withEngine<T>(work: (engine: Engine) => Promise<T>): Promise<T> {
  const engine = new Engine(engineAddress()!)
  return work(engine).finally(() => engine.close())
}

/** Ids of the engine's containers that belong to environments, of one run or of all. */
export async function environmentContainers(engine: Engine, run?: string): Promise<readonly string[]> {
  const label = run === undefined ? 'troupe.environment' : `troupe.run=${run}`
  const query = { all: 1, filters: JSON.stringify({ label: [label] }) }
  const found = await engine.call<{ Id: string }[]>('GET', '/containers/json', { query })
  return found.map(({ Id }) => Id)
}
