/**
 * Notices the end of the `npx` that started this command. npm passes SIGTERM to its shell only, and the shell dies
 * without passing it on: `kill` of the pid that `npx troupe … &` printed would leave this process running.
 *
 * in   the environment, this process's parent        out  one call when the parent has ended
 * Invariant: only a command that npx itself started is watched, never one that such a command starts. cli/main.ts loads
 * this file for every command.
 */
const checkEveryMs = 500

const isOfNpx =
  process.env.npm_lifecycle_event === 'npx' && /^['"]?troupe['"]?$/.test(process.env.npm_lifecycle_script ?? '')
// Read at the start: npx may end before the command begins to watch.
const parent = process.ppid
// This command's own children inherit the environment, but npx did not start them.
if (isOfNpx) delete process.env.npm_lifecycle_script

/** Calls `ended` once when the npx that started this process has ended. Returns a function that stops watching. */
export function onNpxEnd(ended: () => void): () => void {
  if (!isOfNpx) return () => {}
  const timer = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(timer)
    ended()
  }, checkEveryMs)
  timer.unref()
  return () => clearInterval(timer)
}
