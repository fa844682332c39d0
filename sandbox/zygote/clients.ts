/**
 * Counts the running calls of each client, to tell a client whose only call waits for the calls of others.
 *
 * in   calls that are sent and that end, by their client      out  whether a client runs nothing while others do
 */
export class Clients {
  readonly #running = new Map<string, number>()

  add(client: string): void {
    this.#running.set(client, (this.#running.get(client) ?? 0) + 1)
  }

  remove(client: string): void {
    const left = (this.#running.get(client) ?? 1) - 1
    if (left === 0) this.#running.delete(client)
    else this.#running.set(client, left)
  }

  /** True if calls run, and none of them is this client's. */
  othersOnly(client: string): boolean {
    return this.#running.size > 0 && !this.#running.has(client)
  }
}
