/**
 * Checks that a server decodes token ids as the run's model does.
 *
 * in   the server's decoding of ids        out  nothing, or a refusal that names the id and both texts
 * Invariant: ids from the whole vocabulary are compared. A server without a tokenizer cannot be asked, and needs none.
 */
import { TroupeError } from '../../../runtime/errors'
import type { ServerExpectation } from './expectation'

const sampledIds = 64

/** @param read undefined: the server has no tokenizer. @throws TroupeError engine.unfit */
export async function checkTokenizer(
  server: string,
  { vocabulary, decode }: Pick<ServerExpectation, 'vocabulary' | 'decode'>,
  read: (ids: Int32Array) => Promise<string | undefined>,
): Promise<void> {
  const ids = Int32Array.from({ length: sampledIds }, (_, k) => Math.floor(((k + 0.5) * vocabulary) / sampledIds))
  const theirs = await read(ids)
  if (theirs === undefined || theirs === (await decode(ids))) return
  // Together, two tokens may differ by a blank between them: one by one they must not.
  for (const id of ids) {
    const one = Int32Array.of(id)
    const [said, ours] = [await read(one), await decode(one)]
    if (said === undefined || said.trim() === ours.trim()) continue
    const differs = `its tokenizer reads id ${id} as ${JSON.stringify(said)}, the run's model reads ${JSON.stringify(ours)}`
    throw unfitServer(server, differs, "start it with the run's model, and without a tokenizer of its own")
  }
}

/** Error of a server that this run cannot use. @param server kind and address */
export const unfitServer = (server: string, differs: string, hint: string): TroupeError =>
  new TroupeError('engine.unfit', {
    boundary: 'engine',
    retriable: false,
    message: `the ${server} does not fit this run: ${differs}`,
    hint,
  })
