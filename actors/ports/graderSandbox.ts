/**
 * The sandbox that math-verify runs in: the project's own Python, which has it, warm.
 *
 * in   how many answers may be looked at at once        out  a sandbox for `answerGrader`
 */
import { pythonPath } from '../../runtime/python'
import { openSandbox, type Sandbox } from '../../sandbox'

/** One that takes math-verify to its deadline holds up its own lane alone. */
export const graderLanes = 4

/** @throws what `openSandbox` does, and TroupeError where the Python environment is not set up. */
export const openGraderSandbox = (lanes: number = graderLanes): Promise<Sandbox> =>
  openSandbox({ lanes, python: pythonPath(), preload: ['math_verify'] })
