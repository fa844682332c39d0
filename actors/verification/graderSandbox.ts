/**
 * The sandbox that math-verify runs in: the project's own Python, which has it, warm.
 *
 * in   how many answers may be looked at at once        out  a sandbox for `answerGrader`
 * Invariant: it is opened by the first answer that needs it, since most truths are integers and a warm math-verify takes
 * a second and 80 MB; where opening fails, that call rejects and the next one tries again.
 */
import { pythonPath } from '../../runtime/python'
import { openSandbox, type Sandbox } from '../../sandbox'

/** One that takes math-verify to its deadline holds up its own lane alone. */
export const graderLanes = 4

export type GraderSandbox = Pick<Sandbox, 'run' | 'lanes' | 'close'>

/** `run` rejects as `openSandbox` does, and with a TroupeError where the Python environment is not set up. */
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
      return (await opening).run(request, signal)
    },
    async close() {
      await (await opening?.catch(() => undefined))?.close()
    },
  }
}
