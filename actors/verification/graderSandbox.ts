/**
 * Opens the sandbox for math-verify: the project's Python with math-verify preloaded.
 *
 * in   the number of worker processes        out  a sandbox for `answerGrader`
 * Invariant: the first answer that needs math-verify opens the sandbox, since most truths are integers and a preloaded
 * math-verify takes a second and 80 MB. If opening fails, that call rejects and the next call tries again. A call
 * whose zygote (the interpreter process that forks a child for each call) dies is run again (sandbox/retryLost.ts).
 */
import { pythonPath } from '../../runtime/python'
import { openSandbox, type Sandbox } from '../../sandbox'
import { retryLost } from '../../sandbox/retryLost'

/**
 * Default number of worker processes. A pair of answer and truth that takes until its deadline occupies only one of
 * them.
 */
export const graderLanes = 4

export type GraderSandbox = Pick<Sandbox, 'run' | 'lanes' | 'close'>

/**
 * Makes the sandbox. Its `run` rejects with the errors of `openSandbox`, and with TroupeError process.no_python if
 * Python is not set up.
 */
export function graderSandbox(lanes: number = graderLanes): GraderSandbox {
  let opening: Promise<Sandbox> | undefined
  const open = async () => openSandbox({ lanes, python: pythonPath(), preload: ['math_verify'] })
  return {
    lanes,
    async run(request, signal) {
      opening ??= open().catch(thrown => {
        opening = undefined
        throw thrown
      })
      const opened = await opening
      return retryLost(() => opened.run(request, signal))
    },
    async close() {
      await (await opening?.catch(() => undefined))?.close()
    },
  }
}
