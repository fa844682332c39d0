/**
 * Makes an archive of the classes that a broker loads (the JVM's AppCDS), which halves the CPU time of a broker's
 * start.
 *
 * in   the folder of Kafka's jars      out  .cache/kafka-classes.jsa, made by the first start in a checkout
 * Invariant: an archive that is missing, or that another JVM or other jars made, only makes a start slower.
 */
import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { freePorts, listens } from './ports'
import { until } from './until'

const archive = join(__dirname, '../../.cache/kafka-classes.jsa')
/** Any id of 16 bytes. */
const clusterId = 'MkU3OEVBNTcwNTJENDM2Qk'
const timeoutMs = 60_000

/** JVM flags that use the archive; none if it cannot be made. */
export async function sharedClasses(
  libs: string,
  java: (...args: readonly string[]) => string[],
): Promise<readonly string[]> {
  if (!isOf(libs)) await makeArchive(java).catch(() => {})
  return isOf(libs) ? [`-XX:SharedArchiveFile=${archive}`] : []
}

/** True if the archive is newer than the jars. */
function isOf(libs: string): boolean {
  const made = statSync(archive, { throwIfNoEntry: false })
  return made !== undefined && made.mtimeMs > statSync(libs).mtimeMs
}

/** Runs a broker until it listens; the JVM writes the archive when it ends. */
async function makeArchive(java: (...args: readonly string[]) => string[]): Promise<void> {
  const [client, controller] = await freePorts(2)
  const fresh = `${archive}.${process.pid}`
  mkdirSync(dirname(archive), { recursive: true })
  const root = mkdtempSync(join(tmpdir(), 'troupe-kafka-classes-'))
  try {
    const file = join(root, 'server.properties')
    const properties = [
      ...['process.roles=broker,controller', 'node.id=1', `controller.quorum.voters=1@127.0.0.1:${controller}`],
      `listeners=PLAINTEXT://127.0.0.1:${client},CONTROLLER://127.0.0.1:${controller}`,
      ...['controller.listener.names=CONTROLLER', `log.dirs=${join(root, 'data')}`],
      'offsets.topic.replication.factor=1',
    ]
    writeFileSync(file, properties.join('\n'))
    const formatted = spawnSync('java', java('kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', file))
    if (formatted.status !== 0) throw new Error('the storage could not be formatted')
    const broker = spawn('java', [`-XX:ArchiveClassesAtExit=${fresh}`, ...java('kafka.Kafka', file)], {
      stdio: 'ignore',
    })
    const ended = new Promise<void>(resolve => broker.once('exit', () => resolve()))
    const late = setTimeout(() => broker.kill('SIGKILL'), timeoutMs)
    try {
      await until(() => broker.exitCode !== null || listens(broker.pid!, client!), timeoutMs, 50)
    } finally {
      broker.kill('SIGTERM')
      await ended
      clearTimeout(late)
    }
    renameSync(fresh, archive)
  } finally {
    rmSync(fresh, { force: true })
    rmSync(root, { recursive: true, force: true })
  }
}
