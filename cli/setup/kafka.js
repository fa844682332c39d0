/**
 * Installs a Kafka broker, to run by hand and for the tests: Maven fetches its jars into the cache of the set-up.
 *
 * in   kafka/pom.xml, kafka/sums.txt     out  <cache>/kafka-4.1.0, every jar with the SHA-256 that sums.txt states
 * An unpacked Kafka works as well: TROUPE_KAFKA_LIBS names its libs folder. Kafka runs on Java 17 or newer.
 */
const { spawnSync } = require('node:child_process')
const { createHash } = require('node:crypto')
const fs = require('node:fs')
const path = require('node:path')
const { SetupError, digestOf, readStamp, writeStamp } = require('./say')
const { runTool } = require('./tool')
const { shellWords } = require('./python')

const version = '4.1.0'
const plugin = 'org.apache.maven.plugins:maven-dependency-plugin:3.8.1'
const pom = path.join(__dirname, 'kafka/pom.xml')
const sums = path.join(__dirname, 'kafka/sums.txt')
const stampOf = folder => path.join(folder, '.troupe-setup.json')

/** Path of the folder for the jars; the folder may not exist yet. */
function libsOf(where, env = process.env) {
  return env.TROUPE_KAFKA_LIBS ? path.resolve(env.TROUPE_KAFKA_LIBS) : path.join(where.logs, `kafka-${version}`)
}

function isComplete(folder) {
  return readStamp(stampOf(folder)).digest === digestOf([pom, sums])
}

const notRun = (program, error) =>
  error.code === 'ENOENT' ? `${program} is not on PATH` : `${program} does not run: ${error.message}`

/** Throws a SetupError unless a Java is installed that can run this Kafka. */
function checkJava() {
  const reply = spawnSync('java', ['-version'], { encoding: 'utf8', timeout: 30_000 })
  const hint = 'install Java 17 or newer (Debian, Ubuntu: apt install default-jre-headless)'
  if (reply.error) throw new SetupError(`a Kafka broker needs Java, but ${notRun('java', reply.error)}`, hint)
  const major = Number(/version "(\d+)/.exec(reply.stderr)?.[1])
  if (!(major >= 17))
    throw new SetupError(`java is version ${major || 'unknown'}; Kafka ${version} needs 17 or newer`, hint)
}

function checkMaven() {
  const reply = spawnSync('mvn', ['--version'], { encoding: 'utf8', timeout: 60_000 })
  if (!reply.error && reply.status === 0) return
  const hint =
    'install it (Debian, Ubuntu: apt install maven), or unpack an Apache Kafka and name its libs folder in TROUPE_KAFKA_LIBS'
  const why = reply.error ? notRun('mvn', reply.error) : '`mvn --version` fails'
  throw new SetupError(`fetching the jars of Kafka needs Maven, but ${why}`, hint, reply.stderr ?? '')
}

function step(where) {
  const target = libsOf(where)
  return {
    name: 'Kafka',
    says: `jars of Apache Kafka ${version} by Maven (43 MB)`,
    isDone: () => Boolean(process.env.TROUPE_KAFKA_LIBS) || isComplete(target),
    async run() {
      checkJava()
      checkMaven()
      fs.mkdirSync(where.logs, { recursive: true })
      const fresh = fs.mkdtempSync(path.join(where.logs, '.kafka-'))
      try {
        const extra = shellWords(process.env.TROUPE_MAVEN_ARGS ?? '')
        const args = ['-B', '-ntp', '-f', pom, `${plugin}:copy-dependencies`, `-DoutputDirectory=${fresh}`, ...extra]
        await runTool('Kafka', 'mvn', args, { cwd: fresh, where })
        verify(fresh)
        writeStamp(stampOf(fresh), { digest: digestOf([pom, sums]) })
        fs.rmSync(target, { recursive: true, force: true })
        fs.renameSync(fresh, target)
      } finally {
        fs.rmSync(fresh, { recursive: true, force: true })
      }
    },
  }
}

/** Checks that the folder holds exactly the jars of sums.txt, each with the SHA-256 that sums.txt states. */
function verify(folder) {
  const wanted = new Map(
    fs
      .readFileSync(sums, 'utf8')
      .trim()
      .split('\n')
      .map(line => line.split(/\s+/).reverse()),
  )
  const found = fs.readdirSync(folder).filter(name => name.endsWith('.jar'))
  const faults = [
    ...[...wanted.keys()].filter(name => !found.includes(name)).map(name => `${name} is missing`),
    ...found.filter(name => !wanted.has(name)).map(name => `${name} is not expected`),
    ...found
      .filter(name => wanted.has(name) && digest(path.join(folder, name)) !== wanted.get(name))
      .map(name => `${name} has another SHA-256 than sums.txt says`),
  ]
  if (faults.length === 0) return
  const hint = 'a mirror may serve other files: look at the Maven settings in use, empty ~/.m2/repository, try again'
  throw new SetupError(
    'the jars that Maven fetched differ from the jars that kafka/sums.txt lists',
    hint,
    faults.join('\n'),
  )
}

const digest = file => createHash('sha256').update(fs.readFileSync(file)).digest('hex')

module.exports = { step, libsOf, isComplete, checkJava, verify }
