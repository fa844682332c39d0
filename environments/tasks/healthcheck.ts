/**
 * Waits until an environment's health check succeeds, with the meaning of Docker's HEALTHCHECK.
 *
 * in   the check of task.toml
 * out  nothing; an error once `retries` checks have failed after the start period, or when the environment has died
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { lastExcerpt } from '../../runtime/secrets/knownSecrets'
import type { Environment } from '../drivers/driver'
import { environmentError } from '../drivers/errors'
import type { HealthcheckToml } from './taskToml'

/**
 * Waits until the check succeeds; returns at once if the task has none. @throws TroupeError environment.start_failed
 */
export async function waitUntilHealthy(environment: Environment, check: HealthcheckToml | undefined): Promise<void> {
  if (check === undefined) return
  const { command, interval_sec, timeout_sec, start_period_sec, start_interval_sec, retries } = check
  const began = performance.now()
  let failures = 0
  for (;;) {
    const { status, stdout, stderr } = await environment.exec({ command, timeoutMs: timeout_sec * 1000 })
    if (status === 'ok') return
    const isStarting = performance.now() - began < start_period_sec * 1000
    if (!isStarting) failures++
    if (status === 'lost' || failures >= retries)
      throw environmentError(
        'environment.start_failed',
        status === 'lost'
          ? `environment ${environment.id} died during its health check '${command}'`
          : `environment ${environment.id}: its health check failed ${failures} times: ${lastExcerpt(`${stderr}${stdout}`, 300) || status}`,
      )
    await sleep((isStarting ? start_interval_sec : interval_sec) * 1000)
  }
}
