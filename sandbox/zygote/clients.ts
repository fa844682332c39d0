/**
 * Counts the running calls of each client, to find clients that run no call while another client floods the sandbox.
 *
 * in   calls that are sent and that end, by their client
 * out  true if a client runs no call while another runs MANY (4) or more
 * Invariant: while every client runs fewer than MANY calls, no client is preferred: more calls at once would slow each
 * of them.
 */

/**
 * Number of running calls at which a client counts as flooding: one more than the long calls of a zygote (open.ts,
 * LONG).
 */
const MANY = 4

export class Clients {
  readonly #running = new Map<string, number>()
  #floods = 0

  add(client: string): void {
    const now = (this.#running.get(client) ?? 0) + 1
    this.#running.set(client, now)
    if (now === MANY) this.#floods++
  }

  remove(client: string): void {
    const left = (this.#running.get(client) ?? 1) - 1
    if (left === MANY - 1) this.#floods--
    if (left === 0) this.#running.delete(client)
    else this.#running.set(client, left)
  }

  /** True if this client runs nothing, and another runs MANY calls or more. */
  waitsForFlood(client: string): boolean {
    return this.#floods > 0 && !this.#running.has(client)
  }
}
