/** Tools of an agent in real environments: what a call leaves for the next one, how each kind of end is told, and its bounds. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Environment } from '../../../environments/drivers/driver'
import { localDriver } from '../../../environments/drivers/local'
import { runBash } from '../../../environments/tools/bash'
import { runEditor } from '../../../environments/tools/editor'
import { systemEffects } from '../../../runtime/effects'

jest.setTimeout(60_000)
const isRoot = process.platform === 'linux' && process.geteuid?.() === 0
const inEnvironment = isRoot ? describe : describe.skip

inEnvironment('in an environment', () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-tools-'))
  const driver = localDriver({ run: 'tools', fx: systemEffects, directory })
  let environment: Environment
  beforeAll(async () => {
    environment = await driver.start({ network: 'no-network', limits: { memoryMb: 256, processes: 64 } })
  })
  afterAll(async () => {
    await driver.close()
    rmSync(directory, { recursive: true, force: true })
  })
  const bash = (command: unknown, timeoutMs = 10_000) => runBash(environment, command, { timeoutMs })
  const edit = (args: Record<string, unknown>) => runEditor(environment, args, { timeoutMs: 10_000 })

  test('directory, variables and functions carry over to the next command, and its own words do not', async () => {
    await bash('mkdir -p /app/a && cd /app/a; plain=1; export SHOWN="two\nlines"; list=("y z" x); f() { echo "f $1"; }')
    const { stdout, stderr } = await bash('pwd; echo $plain "$SHOWN" "$list"; f it; sh -c \'echo "[$SHOWN]"\'; echo $#')
    expect([stdout, stderr]).toEqual(['/app/a\n1 two\nlines y z\nf it\n[two\nlines]\n0\n', ''])
    expect((await bash('cd /; unset plain; exit 3')).exitCode).toBe(3)
    expect((await bash('pwd; echo "[$plain]"')).stdout).toBe('/\n[]\n')
  })

  test('where there is no bash, sh runs the command, and directory and exported variables carry over', async () => {
    const programs = ['sh', 'id', 'sed', 'grep', 'rm', 'mkdir', 'cat']
    await bash(`mkdir -p /app/bin; for p in ${programs.join(' ')}; do ln -s $(command -v $p) /app/bin/$p; done`)
    const { digest } = await environment.snapshot()
    const limits = { memoryMb: 256, processes: 64 }
    const bare = await driver.start({ network: 'no-network', limits, env: { PATH: '/app/bin' }, snapshot: digest })
    const sh = (command: string) => runBash(bare, command, { timeoutMs: 10_000 })
    await sh('mkdir -p "/app/it\'s here"; cd "/app/it\'s here"; export WORD=\'two words\'; command -v bash && exit 9')
    expect(await sh('pwd; echo "$WORD"')).toMatchObject({ status: 'ok', stdout: "/app/it's here\ntwo words\n" })
    await bare.stop()
  })

  test('a command that changes no state leaves no file, so that looking around is no change', async () => {
    const fresh = await driver.start({ network: 'no-network', limits: { memoryMb: 256, processes: 64 } })
    const before = await fresh.snapshot()
    await runBash(fresh, 'ls; cat /etc/passwd | head -n 1; false', { timeoutMs: 10_000 })
    expect((await fresh.snapshot()).digest).toBe(before.digest)
    await fresh.stop()
  })

  test.each<[string, unknown, object]>([
    ['success', 'echo out; echo err >&2', { status: 'ok', exitCode: 0, stdout: 'out\n', stderr: 'err\n' }],
    ['an exit code', 'echo x; exit 7', { status: 'error', exitCode: 7, stdout: 'x\n' }],
    [
      'a syntax error with its line',
      'echo 1\nif',
      { status: 'error', exitCode: 2, stderr: expect.stringMatching(/line [23]:/) },
    ],
    ['a signal', 'kill -9 $$', { status: 'killed', signal: 'SIGKILL' }],
    ['no command', 3, { status: 'rejected', reason: 'command must be a string' }],
    ['too long a command', 'x'.repeat(130_000), { status: 'rejected', reason: expect.stringContaining('at most') }],
  ])('the outcome of %s', async (_title, command, expected) => {
    expect(await bash(command)).toMatchObject(expected)
  })

  test('a deadline ends the command with its children, and the shell goes on as it was before', async () => {
    await bash('cd /app; kept=yes')
    expect(await bash('cd /tmp; kept=no; sleep 30 | cat', 500)).toMatchObject({ status: 'timeout', timeoutMs: 500 })
    expect((await bash('pwd; echo $kept')).stdout).toBe('/app\nyes\n')
    expect((await bash('cat /proc/[0-9]*/cmdline | tr "\\0" " " | grep -c "sleep 3[0]"')).stdout).toBe('0\n')
  })

  test('output is capped, and standard input is empty', async () => {
    const { stdout } = await bash('cat; head -c 300000 /dev/zero | tr "\\0" a')
    expect(stdout).toHaveLength(64 * 1024)
  })

  test('files are created, shown, edited and listed, with their mode kept', async () => {
    expect(await edit({ command: 'create', path: '/app/new/a.sh', file_text: 'one\ntwo\n' })).toMatchObject({
      status: 'ok',
    })
    await bash('chmod 755 /app/new/a.sh')
    expect(await edit({ command: 'str_replace', path: '/app/new/a.sh', old_str: 'two', new_str: 'TWO' })).toMatchObject(
      {
        status: 'ok',
        stdout: '     1\tone\n     2\tTWO\n',
      },
    )
    await edit({ command: 'insert', path: '/app/new/a.sh', insert_line: 1, new_str: 'half' })
    expect((await bash('cat /app/new/a.sh; stat -c %a /app/new/a.sh')).stdout).toBe('one\nhalf\nTWO\n755\n')
    expect((await edit({ command: 'view', path: '/app/new/a.sh', view_range: [2, -1] })).stdout).toBe(
      '     2\thalf\n     3\tTWO\n',
    )
    expect((await edit({ command: 'view', path: '/app/new' })).stdout).toContain('./a.sh')
  })

  test.each<[string, Record<string, unknown>, RegExp]>([
    ['a relative path', { command: 'view', path: 'a' }, /absolute/],
    ['a file that does not exist', { command: 'view', path: '/app/none' }, /does not exist/],
    ['a device', { command: 'view', path: '/dev/zero' }, /not a regular file/],
    ['bytes that are no text', { command: 'view', path: '/app/bytes' }, /not UTF-8/],
    ['a file of many bytes', { command: 'view', path: '/app/big' }, /more than 1048576 bytes/],
    ['a directory to edit', { command: 'create', path: '/app', file_text: 'x' }, /is a directory/],
  ])('%s is refused', async (_title, args, reason) => {
    await bash('printf "\\377\\376" > /app/bytes; head -c 2000000 /dev/zero > /app/big')
    expect((await edit(args)).reason).toMatch(reason)
  })

  test("the agent's user can write only what is its own", async () => {
    await bash('echo secret > /app/root-only; chmod 600 /app/root-only')
    const as = { timeoutMs: 10_000, user: 'agent' }
    const read = await runEditor(environment, { command: 'view', path: '/app/root-only' }, as)
    expect(read).toMatchObject({ status: 'error', stderr: expect.stringMatching(/denied/i) })
    const write = await runEditor(environment, { command: 'create', path: '/app/x', file_text: 'x' }, as)
    expect(write).toMatchObject({ status: 'error', stderr: expect.stringMatching(/denied/i) })
  })
})
