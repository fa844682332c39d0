/**
 * Runs a judge in its own process, like `troupe judge`: over the sandbox, or over workers built like Code Judge's.
 *
 * in   a JudgeSetup as the first argument      out  {url} or {error} to the parent; it ends when the parent does
 */
import { openJudge, openSandbox, type SandboxOptions } from '../../../sandbox'
import { freshProcesses } from './freshProcesses'

export type JudgeSetup = { readonly timeoutMs?: number } & (
  | { readonly kind: 'sandbox'; readonly options: SandboxOptions }
  | { readonly kind: 'fresh'; readonly workers: number; readonly python: string }
)

async function main(setup: JudgeSetup): Promise<void> {
  const sandbox =
    setup.kind === 'sandbox' ? await openSandbox(setup.options) : freshProcesses(setup.workers, setup.python)
  const judge = await openJudge(sandbox, { port: 0, timeoutMs: setup.timeoutMs ?? 4000 })
  process.send!({ url: judge.url })
  process.once('disconnect', () => {
    void judge
      .close()
      .then(() => sandbox.close())
      .then(() => process.exit(0))
  })
}

main(JSON.parse(process.argv[2]!) as JudgeSetup).catch((error: Error) => {
  process.send!({ error: error.message })
  process.disconnect()
})
