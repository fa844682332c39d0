/** Promise: an error of a program names how the program ended. */
import { execFile, execFileSync } from 'node:child_process'
import { promisify } from 'node:util'
import { failedHow } from '../../runtime/python'

function failure(program: string, timeout = 30_000): unknown {
  try {
    execFileSync(process.execPath, ['-e', program], { timeout, stdio: ['ignore', 'ignore', 'pipe'] })
  } catch (thrown) {
    return thrown
  }
  return undefined
}

test('a program that failed is told by its last line on stderr, its exit code, its signal, or its deadline', async () => {
  expect(failedHow(failure("console.error('first\\nlast'); process.exit(3)"), 1)).toBe('last')
  expect(failedHow(failure('process.exit(3)'), 1)).toBe('it ended with exit code 3')
  expect(failedHow(failure("console.error('x'); process.kill(process.pid, 'SIGKILL')"), 1)).toBe(
    'it was ended by SIGKILL',
  )
  expect(failedHow(failure('setTimeout(() => {}, 9000)', 50), 50)).toBe('it did not end within 50 ms')
  const late = promisify(execFile)(process.execPath, ['-e', 'setTimeout(() => {}, 9000)'], { timeout: 50 })
  expect(failedHow(await late.catch(thrown => thrown), 50)).toBe('it did not end within 50 ms')
  const absent = promisify(execFile)('/nowhere/python', [])
  expect(failedHow(await absent.catch(thrown => thrown), 50)).toContain('ENOENT')
  // Not of the program: its output could not be parsed.
  expect(failedHow(new SyntaxError('Unexpected token'), 50)).toBe('Unexpected token')
})
