/**
 * Contract of environment drivers, against the real ones: namespaces, overlayfs, cgroups. A driver that cannot run
 * on this machine is skipped with the reason.
 */
import { execFileSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { dockerDriver, dockerMissing } from '../../environments/docker/dockerDriver'
import type { Environment, EnvironmentDriver, ExecRequest } from '../../environments/drivers/driver'
import { localDriver } from '../../environments/drivers/local'
import { ociDriver, ociMissing } from '../../environments/drivers/oci'
import { systemEffects } from '../../runtime/effects'
import { environmentContainers, environmentOwner, withEngine } from '../support/environmentOwner'
import { importMinimal, makeMinimalImage, removeImages } from '../support/minimalImage'

jest.setTimeout(60_000)

const localMissing =
  process.platform === 'linux' && process.geteuid?.() === 0 ? undefined : 'this suite runs local as root'
const kinds = [
  { name: 'local', open: localDriver, missing: localMissing },
  { name: 'oci', open: ociDriver, missing: ociMissing() },
  { name: 'docker', open: dockerDriver, missing: dockerMissing() },
] as const

for (const { name, open, missing } of kinds) {
  if (missing !== undefined) {
    console.warn(`the driver ${name} is not tested: ${missing}`)
    test.skip(`the driver ${name}: ${missing}`, () => {})
    continue
  }
  describe(`the driver ${name}`, () => {
    const directory = mkdtempSync(join(tmpdir(), 'troupe-environments-'))
    const options = { run: 'contract', epoch: 1, fx: systemEffects, directory }
    const spec = { image: 'minimal', network: 'no-network', limits: { memoryMb: 128, processes: 40, cpus: 1 } } as const
    let driver: EnvironmentDriver
    let shared: Environment
    beforeAll(async () => {
      makeMinimalImage(directory)
      if (name === 'docker') await withEngine(engine => importMinimal(engine, directory))
      driver = open(options)
      shared = await driver.start({ ...spec, env: { OF_SPEC: 'spec', BOTH: 'spec' } })
    })
    afterAll(async () => {
      await driver.close()
      expect(readdirSync(join(directory, 'live'))).toEqual([])
      if (name === 'docker') {
        expect(await withEngine(engine => environmentContainers(engine))).toEqual([])
        await withEngine(engine => removeImages(engine, directory))
      }
      rmSync(directory, { recursive: true, force: true })
    })
    const run = (command: ExecRequest['command'], more: Partial<ExecRequest> = {}, environment = shared) =>
      environment.exec({ command, timeoutMs: 20_000, ...more })
    const text = async (command: string, more: Partial<ExecRequest> = {}, environment = shared) => {
      const result = await run(command, more, environment)
      return `${result.stdout}${result.stderr}`.trim()
    }

    test('a command has its own exit code, streams, directory, variables and user', async () => {
      const result = await run('echo out; echo err >&2; exit 3')
      expect(result).toMatchObject({ status: 'error', exitCode: 3, signal: null, stdoutBytes: 4 })
      expect([`${result.stdout}`, `${result.stderr}`]).toEqual(['out\n', 'err\n'])
      expect(await text('pwd')).toBe('/app')
      expect(await text('pwd', { cwd: '/tmp' })).toBe('/tmp')
      expect(await text('echo $OF_SPEC $BOTH $HOME', { env: { BOTH: 'command' } })).toBe('spec command /root')
      expect(await text('id -u; id -g; echo $HOME', { user: 'agent' })).toBe('1000\n1000\n/home/agent')
      expect(await text('id -u', { user: 4321 })).toBe('4321')
      expect(await text('cat', { stdin: 'x'.repeat(200_000), maxOutputBytes: 300_000 })).toHaveLength(200_000)
      expect(await run(['sh', '-c', 'kill -9 $$'])).toMatchObject({ status: 'error', exitCode: null, signal: 9 })
    })

    test('a command that cannot be started says why', async () => {
      expect(await run('true', { user: 'nobody-of-this-name' })).toMatchObject({ status: 'rejected' })
      expect((await run('true', { cwd: '/no/such' })).reason).toMatch(/no such|No such/)
      expect((await run(['/no/program'])).reason).toMatch(/No such file/)
    })

    test('the deadline ends a command and its children, and output beyond its bound is counted', async () => {
      const began = performance.now()
      const result = await run('sleep 30 & sleep 31; echo never', { timeoutMs: 300 })
      expect(result).toMatchObject({ status: 'timeout', exitCode: null })
      expect(performance.now() - began).toBeLessThan(10_000)
      expect(
        await text('for p in /proc/[0-9]*; do cat $p/cmdline 2>/dev/null; echo; done | grep -c "sleep3[01]"'),
      ).toBe('0')
      const much = await run('dd if=/dev/zero bs=1024 count=3000 2>/dev/null', { maxOutputBytes: 1000 })
      expect(much.stdout).toHaveLength(1000)
      expect(much.stdoutBytes).toBe(3_072_000)
    })

    test('commands run side by side, and what one leaves behind holds up neither its result nor another', async () => {
      const one = await driver.start(spec)
      let slowEnded = false
      const slow = run('sleep 20', {}, one).then(result => {
        slowEnded = true
        return result
      })
      const left = await run('(while :; do echo more; done) & exit 3', { maxOutputBytes: 10 }, one)
      expect(left).toMatchObject({ status: 'error', exitCode: 3 })
      const input = 'x'.repeat(300_000)
      const texts = await Promise.all(
        [1, 2, 3].map(n => text(`cat | wc -c; echo ${n}`, { stdin: input.slice(n) }, one)),
      )
      expect(texts).toEqual(['299999\n1', '299998\n2', '299997\n3'])
      // The Docker engine pauses a container for a snapshot, and refuses commands meanwhile.
      const snapshot = name === 'docker' ? undefined : one.snapshot()
      const [copied] = await Promise.all([text('cat', { stdin: 'end' }, one), snapshot])
      expect(copied).toBe('end')
      expect(slowEnded).toBe(false)
      await one.stop()
      expect((await slow).status).toBe('lost')
    })

    test('an aborted command is killed', async () => {
      const abort = new AbortController()
      setTimeout(() => abort.abort(), 100)
      await expect(shared.exec({ command: 'sleep 47', timeoutMs: 20_000 }, abort.signal)).rejects.toThrow(/abort/i)
      await new Promise(resolve => setTimeout(resolve, 1000))
      expect(await text('for p in /proc/[0-9]*; do cat $p/cmdline 2>/dev/null; echo; done | grep -c "sleep4[7]"')).toBe(
        '0',
      )
    })

    test('files of any name, size and kind go in and come out', async () => {
      const from = mkdtempSync(join(tmpdir(), 'troupe-files-'))
      const odd = Buffer.from([0x2f, 0xff, 0x0a, 0x20, 0x27, 0x2d])
      writeFileSync(Buffer.concat([Buffer.from(from), odd]), 'odd')
      mkdirSync(join(from, 'deep/er'), { recursive: true })
      writeFileSync(join(from, 'deep/er/empty'), '')
      writeFileSync(join(from, 'big'), Buffer.alloc(30 * 1024 * 1024, 'ab'), { mode: 0o750 })
      await shared.upload(from, '/srv/in')
      expect(await text('cd /srv/in; ls -A | wc -l; stat -c %a,%s,%u big; stat -c %s deep/er/empty')).toBe(
        '4\n750,31457280,0\n0',
      )
      await shared.upload(join(from, 'big'), '/srv/other/name with spaces')
      await run('ln -s /etc/passwd /srv/in/link; mkfifo /srv/in/pipe 2>/dev/null')
      const to = join(from, 'back')
      await shared.download('/srv/in', to)
      expect(readFileSync(Buffer.concat([Buffer.from(to), odd])).toString()).toBe('odd')
      expect(readFileSync(join(to, 'big')).equals(readFileSync(join(from, 'big')))).toBe(true)
      await shared.download('/srv/other/name with spaces', join(from, 'one'))
      expect(readFileSync(join(from, 'one'))).toHaveLength(30 * 1024 * 1024)
      await expect(shared.download('/no/file', join(from, 'none'))).rejects.toMatchObject({
        code: 'environment.transfer_failed',
      })
      expect(existsSync(join(from, 'none'))).toBe(false)
      rmSync(from, { recursive: true })
    })

    test('a symbolic link of the environment leads to its own files, never to the machine', async () => {
      const secret = join(directory, 'secret')
      writeFileSync(secret, 'of the machine')
      await run(`ln -s ${secret} /app/leak; ln -s ${directory} /app/place`)
      await expect(shared.download('/app/leak', join(directory, 'leaked'))).rejects.toThrow()
      const file = join(directory, 'mine')
      writeFileSync(file, 'from outside')
      await shared.upload(file, '/app/place/secret').catch(() => {})
      expect(readFileSync(secret, 'utf8')).toBe('of the machine')
    })

    test('there is no network, no device, no mount, and nothing of the machine', async () => {
      const lines = await text('cat /proc/net/dev')
      expect(
        lines
          .split('\n')
          .filter(line => line.includes(':'))
          .map(line => line.trim().split(':')[0]),
      ).toEqual(['lo'])
      expect(await text('mknod /tmp/sda b 8 0 && echo made')).toMatch(/not permitted/)
      expect(await text('mount -t tmpfs none /app && echo made')).toMatch(/denied|permi|must be superuser/)
      expect(await text(`ls ${directory}`)).toMatch(/No such file/)
      expect(await text('cat /proc/1/environ /proc/self/environ')).not.toMatch(/TROUPE|npm_|NODE/)
      expect(await text('grep Seccomp: /proc/self/status')).toMatch(/2$/)
    })

    if (name !== 'docker')
      test('the first process has no capability, and the filter and the limits of commands; it reaps orphans', async () => {
        const ofFirst = await text('cat /proc/1/status')
        for (const line of ['CapPrm:\t0{16}', 'CapEff:\t0{16}', 'CapBnd:\t0{16}', 'Seccomp:\t2', 'NoNewPrivs:\t1'])
          expect(ofFirst).toMatch(new RegExp(`^${line}$`, 'm'))
        const limiting = 'grep -E "memory|pids|^0::" /proc/1/cgroup'
        expect(await text(limiting)).toBe(await text(limiting.replace('/1/', '/self/')))
        expect(await text(limiting)).toMatch(/troupe-/)
        await run('sh -c "sleep 0.1 & sleep 0.1 &"')
        await new Promise(resolve => setTimeout(resolve, 400))
        expect(await text('grep -l "^State:.Z" /proc/[0-9]*/status | wc -l')).toBe('0')
      })

    if (name !== 'docker')
      test('what /proc and /sys tell about the machine is hidden, and nothing in them can be written', async () => {
        expect(await text('cat /proc/kallsyms /proc/keys /proc/timer_list /proc/interrupts | wc -c')).toBe('0')
        expect(await text('ls -A /proc/acpi /sys/firmware 2>/dev/null | grep -v : | wc -w')).toBe('0')
        for (const file of [
          'sysrq-trigger',
          'sys/kernel/core_pattern',
          'sys/vm/drop_caches',
          'irq/default_smp_affinity',
        ])
          expect(await text(`echo 1 > /proc/${file} && echo written`)).not.toMatch(/written/)
        expect(await text('touch /sys/x; mkdir /sys/fs/x; echo 1 > /sys/kernel/profiling && echo written')).not.toMatch(
          /^written/m,
        )
        expect(await text('ls -A /proc/1/fd; cat /proc/1/environ')).toBe('PATH=/usr/bin:/bin\0')
      })

    if (name === 'oci')
      test('an image whose /proc, /dev or /sys is a link is refused', async () => {
        for (const place of ['proc', 'dev', 'sys']) {
          const image = join(directory, 'images', `linked-${place}`)
          cpSync(join(directory, 'images/minimal'), image, { recursive: true })
          rmdirSync(join(image, 'rootfs', place))
          symlinkSync('/app', join(image, 'rootfs', place))
          await expect(driver.start({ ...spec, image: `linked-${place}` })).rejects.toThrow(
            `/${place} of the image is a file or a link, expected a directory`,
          )
        }
      })

    test('limits on memory and processes hold, and reaching them ends the command alone', async () => {
      expect((await run('head -c 300000000 /dev/zero | tail', { maxOutputBytes: 10 })).status).toBe('error')
      const forks = await text('i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; kill %1 2>/dev/null', {
        timeoutMs: 3000,
      })
      expect(forks).toMatch(/fork/i)
      expect(await text('echo alive', {}, await driver.start(spec))).toBe('alive')
    })

    test('killing ends every process, files stay; a restart goes on with the files', async () => {
      const one = await driver.start(spec)
      await run('echo kept > /app/file; (while :; do echo more >> /app/log; done) &', {}, one)
      const running = run('sleep 40', {}, one)
      await new Promise(resolve => setTimeout(resolve, 200))
      await one.kill()
      expect((await running).status).toBe('lost')
      expect((await run('true', {}, one)).status).toBe('lost')
      await one.download('/app/log', join(directory, 'log1'))
      await new Promise(resolve => setTimeout(resolve, 100))
      await one.download('/app/log', join(directory, 'log2'))
      expect(readFileSync(join(directory, 'log2')).equals(readFileSync(join(directory, 'log1')))).toBe(true)
      await one.restart()
      expect(await text('cat /app/file', {}, one)).toBe('kept')
      await one.stop()
    })

    if (name !== 'docker')
      test('a command is lost if its environment is killed, however early', async () => {
        const one = await driver.start(spec)
        for (let tenths = 0; tenths < 60; tenths += 2) {
          const during = run('sleep 40', {}, one)
          const until = performance.now() + tenths / 10
          while (performance.now() < until) await new Promise(resolve => setImmediate(resolve))
          await one.kill()
          expect(await during).toMatchObject({ status: 'lost' })
          await one.restart()
        }
        await one.stop()
      })

    test('a fork has the files of its origin at that time, and equal digests mean equal files', async () => {
      const one = await driver.start(spec)
      await run('echo 1 > a; mkdir d; echo 2 > d/b; ln -s a l; chmod 700 d; rm -rf /etc/group /home', {}, one)
      const first = await one.snapshot()
      const two = await driver.fork(one)
      expect((await two.snapshot()).digest).toBe(first.digest)
      await run('rm a; echo 3 > c', {}, one)
      expect(await text('cat a d/b; ls; ls /home /etc/group', {}, two)).toMatch(
        /^1\n2\na\nd\nl\n.*No such file[\s\S]*No such file/,
      )
      await run('rm a; echo 3 > c', {}, two)
      expect((await two.snapshot()).digest).toBe((await one.snapshot()).digest)
      const again = await driver.start({ ...spec, snapshot: first.digest })
      expect(await text('cat a', {}, again)).toBe('1')
      await Promise.all([one, two, again].map(environment => environment.stop()))
    })

    test('a snapshot holds files of any name, of UTF-8 and of other bytes, and a change of one is another snapshot', async () => {
      const one = await driver.start(spec)
      const odd =
        'mkdir -p dir; echo 1 > "größe 数.txt"; echo 2 > "dir/$(printf "n\\377")"; echo 3 > "$(printf "m\\376")"'
      await run(odd, {}, one)
      const first = await one.snapshot()
      const two = await driver.start({ ...spec, snapshot: first.digest })
      expect(await text('cat "größe 数.txt" "dir/$(printf "n\\377")" "$(printf "m\\376")"', {}, two)).toBe('1\n2\n3')
      expect((await two.snapshot()).digest).toBe(first.digest)
      const digests = [first.digest]
      for (const change of [
        'echo 4 > "größe 数.txt"',
        'echo 4 > "dir/$(printf "n\\377")"',
        'echo 4 > "$(printf "m\\376")"',
      ]) {
        await run(change, {}, two)
        digests.push((await two.snapshot()).digest)
      }
      expect(new Set(digests).size).toBe(4)
      await Promise.all([one, two].map(environment => environment.stop()))
    })

    if (name !== 'docker')
      test('a command for which the keeper has no descriptors is rejected, and the next one runs', async () => {
        const one = await driver.start(spec)
        const [keeper = ''] = readFileSync(join(directory, 'live/contract/1', one.id, 'keeper.pid'), 'utf8').split(' ')
        const used = readdirSync(`/proc/${keeper}/fd`).map(Number)
        // Three are free: one for the request's connection, too few for the command's pipes.
        let limit = 4
        while (limit - used.filter(fd => fd < limit).length < 3) limit++
        const limitTo = (files: number) => execFileSync('prlimit', ['--pid', keeper, `--nofile=${files}:4096`])
        limitTo(limit)
        for (const stdin of ['', 'input'])
          expect(await run('cat', { stdin }, one)).toMatchObject({
            status: 'rejected',
            reason: "the command's process could not be made: Too many open files",
          })
        limitTo(4096)
        expect(await text('cat', { stdin: 'input' }, one)).toBe('input')
        await one.stop()
      })

    // The containers of the driver docker have no keeper: docker.test.ts.
    if (name !== 'docker')
      test('kill -9 of the fork server ends its environments, and leaves nothing; the next start works', async () => {
        const mine = open({ ...options, run: 'served' })
        const one = await mine.start(spec)
        const running = run('sleep 43', {}, one)
        const [keeper = ''] = readFileSync(join(directory, 'live/served/1', one.id, 'keeper.pid'), 'utf8').split(' ')
        process.kill(Number(/PPid:\s+(\d+)/.exec(readFileSync(`/proc/${keeper}/status`, 'utf8'))![1]), 'SIGKILL')
        expect((await running).status).toBe('lost')
        await one.stop()
        await expect(run('true', {}, one)).rejects.toMatchObject({ code: 'environment.ended' })
        expect(existsSync(join(directory, 'live/served'))).toBe(false)
        const two = await mine.start(spec)
        expect(await text('echo alive', {}, two)).toBe('alive')
        await mine.close()
        expect(existsSync(join(directory, 'live/served'))).toBe(false)
      })

    if (name !== 'docker')
      test('kill -9 of the owner leaves nothing; what a killed keeper leaves, the sweeper removes', async () => {
        const owner = await environmentOwner(name, directory, spec)
        const live = join(directory, 'live/killed/1')
        const [first = ''] = readdirSync(live)
        const [keeper] = readFileSync(join(live, first, 'keeper.pid'), 'utf8').split(' ')
        expect(processes('sleep 4711')).toBe(2)
        // Both at once: the first environment has nobody left who could clean up.
        process.kill(Number(keeper), 'SIGKILL')
        process.kill(owner.pid as number, 'SIGKILL')
        for (let tries = 0; readdirSync(live).length > 1 && tries < 100; tries++)
          await new Promise(resolve => setTimeout(resolve, 100))
        expect(readdirSync(live)).toEqual([first])
        expect(await open({ ...options, run: 'next' }).sweep()).toEqual([first])
        expect(readdirSync(live)).toEqual([])
        expect(processes('sleep 4711')).toBe(0)
        expect(
          execFileSync('sh', ['-c', `find /sys/fs/cgroup -maxdepth 3 -name "troupe-${first}*" | wc -l`], {
            encoding: 'utf8',
          }).trim(),
        ).toBe('0')
        rmSync(join(directory, 'live/killed'), { recursive: true })
      })

    test('a later epoch of a run removes the environments of an earlier one', async () => {
      const old = open({ ...options, run: 'replaced', epoch: 1 })
      const one = await old.start(spec)
      expect(await open({ ...options, run: 'replaced', epoch: 1 }).sweep()).toEqual([])
      expect(await open({ ...options, run: 'replaced', epoch: 2 }).sweep()).toEqual([one.id])
      await one.stop()
      rmSync(join(directory, 'live/replaced'), { recursive: true, force: true })
    })
  })
}

/** Number of processes with this command line, counted by ps. */
function processes(command: string): number {
  return execFileSync('ps', ['-eo', 'args'], { encoding: 'utf8' })
    .split('\n')
    .filter(line => line === command).length
}
