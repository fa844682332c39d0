/**
 * Counts the running calls of each client, to tell a client that waits for another's flood.
 *
 * in   calls that are sent and that end, by their client      out  whether a client runs nothing while another runs many
 * Invariant: where every client runs a few calls, none is told apart: more calls at once would make each of them slower.
 */

/** Running calls from which on a client counts as one that floods: one core's share of long calls, and one more. */
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
