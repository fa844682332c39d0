/**
 * Stores the beginnings of a session's conversations, to find out how a request that continues none of them differs.
 *
 * in   the beginnings of recorded conversations, and of a request        out  what the two share
 * Invariant: each question is one look-up, however many conversations the session has. Digests stand for messages.
 */
import { chained, type Message, messageDigest } from './message'

export interface Root {
  /** Canonical JSON of the offered tools. */
  readonly tools: string
  /** Digest of the first message. */
  readonly first: string
  /** Returns the digest of the tools and the first message that is not the system's. */
  readonly begun: () => string
  readonly hasSystem: boolean
}

export function rootOf(tools: string, messages: readonly Message[]): Root {
  const [first] = messages
  const begun = messages.find(one => one.role !== 'system')
  return {
    ...{ tools, first: messageDigest(first!), hasSystem: first!.role === 'system' },
    begun: () => chained(tools, begun === undefined ? '' : messageDigest(begun)),
  }
}

export class Roots {
  /** By digest of a conversation's first message: the tools that were offered with it. */
  private readonly firsts = new Map<string, Set<string>>()
  /** Tools that were offered with any system message. */
  private readonly underSystem = new Set<string>()
  private readonly behindSystem = new Set<string>()

  add({ tools, first, begun, hasSystem }: Root): void {
    const offered = this.firsts.get(first)
    if (offered === undefined) this.firsts.set(first, new Set([tools]))
    else offered.add(tools)
    if (!hasSystem) return
    this.underSystem.add(tools)
    this.behindSystem.add(begun())
  }

  get isEmpty(): boolean {
    return this.firsts.size === 0
  }

  hasFirst({ first }: Root): boolean {
    return this.firsts.has(first)
  }

  hasFirstWithOtherTools({ first, tools }: Root): boolean {
    const offered = this.firsts.get(first)
    return offered !== undefined && (offered.size > 1 || !offered.has(tools))
  }

  /** True if a conversation with a system message had these tools. */
  hasSystemWith({ tools }: Root): boolean {
    return this.underSystem.has(tools)
  }

  /** True if a conversation with these tools begins with the same message, behind a system message. */
  hasBehindSystem({ begun }: Root): boolean {
    return this.behindSystem.size > 0 && this.behindSystem.has(begun())
  }
}
