/**
 * Orders as files: how `troupe control` reaches a run whose log only one process may write (lmdb).
 *
 * in   an order      out  a file in the run's directory, which the run's process reads
 * Invariant: a file appears whole (rename) and is removed only once its order is in the log, so an order survives a
 * crash of either process; an order that is read twice has the same id both times. Files that hold no order are left
 * alone.
 */
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { ControlRun } from '../../messages/commands'
import type { ControlOrder } from '../../messages/facts'

export const orders: readonly ControlOrder[] = ['pause', 'resume', 'drain', 'abort']

const folder = 'control'
const suffix = '.json'
/** Upper bound on the orders that one call of `waitingOrders` returns. */
const mostAtOnce = 64

export interface OrderFile {
  readonly order: ControlRun
  /** Removes the file. Call it once the order is in the log. */
  done(): Promise<void>
}

/** Writes an order for the run with this directory. */
export async function writeOrder(directory: string, order: ControlRun): Promise<void> {
  const at = join(directory, folder)
  await mkdir(at, { recursive: true })
  const name = `${String(order.at).padStart(15, '0')}-${order.id}`
  await writeFile(join(at, `${name}.part`), JSON.stringify(order))
  await rename(join(at, `${name}.part`), join(at, `${name}${suffix}`))
}

/** Reads the orders that wait, oldest first, at most 64; empty if none waits. */
export async function waitingOrders(directory: string): Promise<readonly OrderFile[]> {
  const at = join(directory, folder)
  const names = (await readdir(at).catch((): string[] => [])).filter(name => name.endsWith(suffix)).sort()
  const found: OrderFile[] = []
  for (const name of names) {
    if (found.length === mostAtOnce) break
    const path = join(at, name)
    const order = orderOf(await readFile(path, 'utf8').catch(() => ''))
    if (order !== undefined) found.push({ order, done: () => rm(path, { force: true }) })
  }
  return found
}

function orderOf(text: string): ControlRun | undefined {
  try {
    const { type, at, id, order, reason } = JSON.parse(text) as ControlRun
    const isOrder = type === 'run.control' && orders.includes(order) && typeof at === 'number'
    return isOrder && typeof id === 'string' && typeof reason === 'string' ? { type, at, id, order, reason } : undefined
  } catch {
    return undefined // the file holds no JSON object, so it is not an order
  }
}
