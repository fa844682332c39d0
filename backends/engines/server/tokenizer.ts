/**
 * Checks that a server decodes token ids as the run's model does.
 *
 * in   the server's decoding of ids        out  nothing, or a refusal that names the id and both texts
 * Invariant: 64 ids are compared, spread over the whole vocabulary; blanks at the ends of a token's text do not count.
 * A server without a tokenizer passes: it cannot decode, and need not.
 */
import { TroupeError } from '../../../runtime/errors'
import type { ServerExpectation } from './expectation'

const sampledIds = 64

/**
 * Compares the decoding of a sample of ids. @param read decodes ids on the server; undefined if the server has no
 * tokenizer
 * @throws TroupeError engine.unfit if the server decodes an id to another text
 */
export async function checkTokenizer(
  server: string,
  { vocabulary, decode }: Pick<ServerExpectation, 'vocabulary' | 'decode'>,
  read: (ids: Int32Array) => Promise<string | undefined>,
): Promise<void> {
  const ids = Int32Array.from({ length: sampledIds }, (_, k) => Math.floor(((k + 0.5) * vocabulary) / sampledIds))
  const theirs = await read(ids)
  if (theirs === undefined || theirs === (await decode(ids))) return
  // Decoded together, two tokens may have a blank between them on one side only, so differing texts are compared id by
  // id.
  for (const id of ids) {
    const one = Int32Array.of(id)
    const [said, ours] = [await read(one), await decode(one)]
    if (said === undefined || said.trim() === ours.trim()) continue
    const differs = `the server's tokenizer reads id ${id} as ${JSON.stringify(said)}, the run's model reads ${JSON.stringify(ours)}`
    throw unfitServer(server, differs, "start the server with the run's model, and without a tokenizer of its own")
  }
}

/** Error for a server that this run cannot use. @param server kind and address of the server */
export const unfitServer = (server: string, differs: string, hint: string): TroupeError =>
  new TroupeError('engine.unfit', {
    boundary: 'engine',
    retriable: false,
    message: `the ${server} does not fit this run: ${differs}`,
    hint,
  })
