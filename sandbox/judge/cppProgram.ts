/**
 * C++ in the sandbox: one call, whose Python code is a launcher that compiles the program, runs it and exits with a
 * code for the outcome (see EXIT).
 *
 * in   C++ source, limits      out  the launcher's Python; from a result, the outcome of the program
 * Invariant: the launcher writes its header (`compiled MS`) to stderr before the program starts, and the exit code is
 * the launcher's, so a program cannot forge them by what it prints or how it exits.
 */
import { CALL_BOUNDS } from '../limits'
import type { RunRequest, RunResult } from '../sandbox'

export interface CppLimits {
  readonly runMs: number
  readonly compileMs: number
  /** Memory limit of the program, MiB. The compiler gets at least 2048 MiB. */
  readonly memoryMb: number
  readonly maxOutputBytes: number
}

export interface CppOutcome {
  /**
   * Outcome of the program. ok: exit code 0. error: any other end. timeout: its time ran out, or the whole call's did.
   * not-compiled: the compiler refused it or took too long. unavailable: compiler or program could not be started (no
   * g++; the sandbox's level allows no processes), or the launcher ended, not by its deadline, before it wrote its
   * header.
   */
  readonly kind: 'ok' | 'error' | 'timeout' | 'not-compiled' | 'unavailable'
  readonly stderr: Uint8Array
  readonly stderrBytes: number
  /** Milliseconds of the whole call minus those of the compilation; 0 if the program did not run. */
  readonly runMs: number
}

/** Minimum memory limit of a call, MiB: `cc1plus` with <bits/stdc++.h> and -O2 takes 0.5 GB of address space. */
const COMPILER_MEMORY_MB = 2048
/** Process limit of a call: the driver, the compiler, the assembler, the linker, and the program's own processes. */
const PROCESSES = 64
/**
 * Milliseconds by which the sandbox's deadline exceeds the sum of the deadlines of compilation and program. The
 * launcher enforces those two; the sandbox's deadline takes effect only if the launcher fails.
 */
const SLACK_MS = 1000
const EXIT = { ok: 0, error: 1, timeout: 2, notCompiled: 3, unavailable: 4 } as const

// The launcher uses `os.posix_spawn` and `sigtimedwait`, since subprocess polls, and waits up to 50 ms too long.
const LAUNCHER = `
def launch(source, run_seconds, compile_seconds, memory_bytes):
    import os, resource, shutil, signal, sys, time
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})

    def header(compile_seconds):
        os.write(2, b'compiled %d\\n' % int(compile_seconds * 1000))

    def leave(code, text=''):
        os.write(2, text.encode('utf-8', 'replace'))
        os._exit(code)

    def run(argv, seconds, environment):
        child = os.posix_spawn(argv[0], argv, environment, setsid=True, setsigmask=[])
        deadline = time.monotonic() + seconds
        while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            signal.sigtimedwait({signal.SIGCHLD}, left)
        else:
            deadline = None
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return os.waitpid(child, 0)[1], deadline is not None

    compiler = shutil.which('g++', path='/usr/local/bin:/usr/bin:/bin')
    if compiler is None:
        header(0)
        leave(${EXIT.unavailable}, 'there is no C++ compiler (g++) on this machine: install g++\\n')
    place = os.environ.get('TMPDIR') or '/tmp'
    program, code = place + '/program', place + '/source.cpp'
    with open(code, 'w') as file:
        file.write(source)
    environment = {'PATH': '/usr/local/bin:/usr/bin:/bin', 'LANG': 'C.UTF-8', 'HOME': place, 'TMPDIR': place}
    os.chdir(place)
    diagnostics = os.open(place + '/diagnostics', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    stdin, stderr, nothing = os.dup(0), os.dup(2), os.open('/dev/null', os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(diagnostics, 2)
    started = time.monotonic()
    try:
        status, late = run([compiler, '-O2', '-pipe', 'source.cpp', '-o', program], compile_seconds, environment)
        problem = None
    except OSError as error:
        problem = error
    for saved, own in ((stdin, 0), (stderr, 2)):
        os.dup2(saved, own)
        os.close(saved)
    os.close(nothing)
    header(time.monotonic() - started)
    if problem is not None:
        leave(${EXIT.unavailable}, 'g++ could not be started in this sandbox: %s\\n' % problem)
    if late:
        leave(${EXIT.notCompiled}, 'compiling took longer than %g s\\n' % compile_seconds)
    if status != 0:
        os.lseek(diagnostics, 0, os.SEEK_SET)
        said = b''.join(iter(lambda: os.read(diagnostics, 65536), b''))
        if not said:
            said = b'g++ ended with wait status %d\\n' % status
        leave(${EXIT.notCompiled}, said.decode('utf-8', 'replace'))
    os.close(diagnostics)
    for name in (code, place + '/diagnostics'):
        os.unlink(name)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = memory_bytes if hard == resource.RLIM_INFINITY else min(hard, memory_bytes)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        status, late = run([program], run_seconds, environment)
    except OSError as error:
        leave(${EXIT.unavailable}, 'the program could not be started: %s\\n' % error)
    if late:
        os._exit(${EXIT.timeout})
    if os.WIFSIGNALED(status):
        leave(${EXIT.error}, 'Killed by %s\\n' % signal.Signals(os.WTERMSIG(status)).name)
    os._exit(${EXIT.ok} if status == 0 else ${EXIT.error})

`

/** Returns the sandbox request that compiles and runs `source`. */
export function cppRequest(id: string, source: string, stdin: string, limits: CppLimits): RunRequest {
  const { runMs, compileMs, memoryMb, maxOutputBytes } = limits
  // JSON.stringify writes a character above U+FFFF as it is, not as two escapes, so its result is also a Python string.
  const given = [JSON.stringify(source), runMs / 1000, compileMs / 1000, memoryMb * 1024 * 1024]
  return {
    id,
    code: `${LAUNCHER}launch(${given.join(', ')})\n`,
    stdin,
    timeoutMs: Math.min(CALL_BOUNDS.timeoutMs[1], compileMs + runMs + SLACK_MS),
    memoryMb: Math.max(COMPILER_MEMORY_MB, memoryMb),
    maxProcesses: PROCESSES,
    maxOutputBytes,
  }
}

/** Returns the outcome of the program, from a result whose status is not `rejected`. */
export function cppOutcome(result: RunResult): CppOutcome {
  const end = result.stderr.indexOf(10) + 1
  const compileMs = Number(
    /^compiled (\d+)\n/.exec(Buffer.from(result.stderr.subarray(0, end)).toString('latin1'))?.[1],
  )
  if (Number.isNaN(compileMs)) {
    // The launcher ended before it wrote its header.
    const kind = result.status === 'timeout' ? 'timeout' : 'unavailable'
    return { kind, stderr: result.stderr, stderrBytes: result.stderrBytes, runMs: 0 }
  }
  const kind = kindOf(result)
  return {
    kind,
    stderr: result.stderr.subarray(end),
    stderrBytes: result.stderrBytes - end,
    runMs: kind === 'not-compiled' || kind === 'unavailable' ? 0 : Math.max(0, result.wallMs - compileMs),
  }
}

function kindOf({ status, exitCode }: RunResult): CppOutcome['kind'] {
  if (status === 'ok') return 'ok'
  if (status === 'timeout' || exitCode === EXIT.timeout) return 'timeout'
  if (exitCode === EXIT.notCompiled) return 'not-compiled'
  return exitCode === EXIT.unavailable ? 'unavailable' : 'error'
}
