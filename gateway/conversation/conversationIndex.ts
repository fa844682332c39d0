/**
 * Finds where a new request continues what a session has recorded.
 *
 * in   the requests and answers of a session's calls, in the log's order; a new request
 * out  the call whose tokens the request continues, the number of messages that it covers, the reason of a branch
 * Invariant: the digest of a conversation covers its tools and all its messages, so a search takes a fixed number of
 * look-ups for each message of the request, however many calls and turns the session has; messages that the client
 * repeats as they are recorded are compared, not hashed. The log and the option `strippedThinking` determine the index.
 */
import type { BranchReason } from '../../messages/facts'
import { type AssistantMessage, chained, isSameText, type Message, messageDigest, strippedDigest } from './message'
import { Roots, rootOf } from './roots'

export interface Conversation {
  /** Canonical JSON of the offered tools; '[]' without any. */
  readonly tools: string
  readonly messages: readonly Message[]
}

export interface Placement {
  /** Call that the request continues; null if its context begins anew. */
  readonly parent: number | null
  /** Number of the request's first messages that the parent's conversation, its answer included, already contains. */
  readonly held: number
  /** Reason why the request begins a branch of the tree; null: it is the first that continues its parent. */
  readonly branch: BranchReason | null
  /** Digest of the tools and digests of all messages, joined to one text. */
  readonly digests: string
}

/** A message that extends a conversation. */
interface Step {
  readonly message: Message
  /** Digest of the message. */
  readonly own: string
  /** Digest of the conversation with the message. */
  readonly end: string
}

/** Record of one conversation: tools and a list of messages. */
interface Seen {
  /** Latest call whose answer is the conversation's last message. */
  call?: number
  /** Number of recorded requests that are exactly this conversation. */
  asked: number
  /** Latest message that extended the conversation; a message with the same text gets its digest from here. */
  latest?: Step
  /** Role of the message that last extended the conversation to one that was not recorded before. */
  follower?: Message['role']
  /** Digests of the conversation extended by each of its recorded answers, without the answer's thinking. */
  stripped?: Set<string>
}

export interface ConversationIndexOptions {
  /**
   * restore: an answer that comes back without its thinking is continued with its sampled tokens. branch: it begins a
   * branch, as the model would otherwise read what the client did not send. Default: branch.
   */
  readonly strippedThinking?: 'branch' | 'restore'
}

export class ConversationIndex {
  /** Recorded conversations by their digest. */
  private readonly seen = new Map<string, Seen>()
  /** Maps the digest of a conversation whose last answer lacks its thinking to the digest with the whole answer. */
  private readonly whole = new Map<string, string>()
  private readonly ends = new Map<number, string>()
  private readonly lengths = new Map<number, number>()
  private readonly roots = new Roots()
  private readonly beginnings = new Map<string, string>()
  /** Number of messages of the longest request. */
  private longest = 0

  constructor(private readonly options: ConversationIndexOptions = {}) {}

  /** Adds a call's request. `messages`: those after the parent and its answer; without a parent, all messages. */
  addRequest(call: number, parent: number | null, tools: string, messages: readonly Message[]): void {
    const start = parent === null ? undefined : this.ends.get(parent)
    let at = start ?? this.beginning(tools)
    let seen = this.at(at)
    for (const message of messages) {
      const step = stepFrom(seen, at, message)
      const next = this.whole.get(step.end) ?? step.end
      this.follow(seen, at, step, next)
      at = next
      seen = this.at(at)
    }
    seen.asked++
    this.ends.set(call, at)
    const length = messages.length + (start === undefined ? 0 : this.lengths.get(parent!)! + 1)
    this.lengths.set(call, length)
    this.longest = Math.max(this.longest, length)
    const [first] = messages
    if (start === undefined && first !== undefined) this.roots.add(rootOf(tools, messages))
  }

  /** Adds the answer to a call whose request was added. */
  addAnswer(call: number, answer: AssistantMessage): void {
    const request = this.ends.get(call)
    if (request === undefined) throw new RangeError(`the answer to call ${call} comes before its request`)
    const seen = this.at(request)
    const step = stepFrom(seen, request, answer)
    const { end } = step
    this.follow(seen, request, step, end)
    this.at(end).call = call
    this.ends.set(call, end)
    if (answer.thinking !== '' && this.options.strippedThinking === 'restore')
      this.whole.set(chained(request, strippedDigest(answer)), end)
  }

  /** Finds the recorded call that a request continues, if there is one, and the reason if it begins a branch. */
  place({ tools, messages }: Conversation): Placement {
    let at = this.beginning(tools)
    let known = this.seen.get(at)
    let parent: number | null = null
    let held = 0
    let i = 0
    const digests = [at]
    for (; known !== undefined && i < messages.length; i++) {
      const step = stepFrom(known, at, messages[i]!)
      known.latest = step
      const next = this.whole.get(step.end) ?? step.end
      const deeper = this.seen.get(next)
      if (deeper === undefined) break
      digests.push(step.own)
      at = next
      known = deeper
      if (deeper.call !== undefined && i + 1 < messages.length) {
        parent = deeper.call
        held = i + 1
      }
    }
    for (let k = i; k < messages.length; k++) digests.push(messageDigest(messages[k]!))
    const branch = this.reason(messages, tools, known, at, i, parent, held)
    return { parent, held, branch, digests: digests.join('') }
  }

  /**
   * Returns why a request begins a branch; null if it is the first that continues its parent.
   * @param known what is recorded about the first `same` messages, whose digest is `at`; undefined if not even the
   * tools are known
   */
  private reason(
    messages: readonly Message[],
    tools: string,
    known: Seen | undefined,
    at: string,
    same: number,
    parent: number | null,
    held: number,
  ): BranchReason | null {
    if (this.roots.isEmpty) return 'first'
    if (known !== undefined && same === messages.length) return known.asked > 0 ? 'sample' : 'rewound'
    const [first] = messages
    if (parent === null && (same === 0 || (same === 1 && first?.role === 'system')))
      return this.reasonOfRoot(messages, tools, same)
    const differing = messages[same]!
    if (known?.follower === undefined) return parent !== null && held === same ? null : 'message-edited'
    if (known.follower === 'assistant')
      return known.stripped?.has(chained(at, messageDigest(differing))) ? 'thinking-stripped' : 'answer-edited'
    if (differing.role === 'tool' && known.follower === 'tool') return 'tool-result-edited'
    return differing.role === 'system' ? 'system-changed' : 'message-edited'
  }

  private reasonOfRoot(messages: readonly Message[], tools: string, same: number): BranchReason {
    const root = rootOf(tools, messages)
    const { hasSystem } = root
    if (same === 0 && this.roots.hasFirstWithOtherTools(root)) return 'tools-changed'
    if (hasSystem && this.roots.hasFirst(root))
      return messages.length < this.longest ? 'compaction' : 'new-conversation'
    if (!hasSystem && this.roots.hasBehindSystem(root)) return 'system-changed'
    const isChanged = hasSystem && this.roots.hasSystemWith(root)
    return isChanged && messages.length >= this.longest ? 'system-changed' : 'new-conversation'
  }

  /** Notes that a message extends a conversation. */
  private follow(seen: Seen, at: string, step: Step, next: string): void {
    const { message, end } = step
    seen.latest = step
    if (this.seen.has(next)) return
    seen.follower = message.role
    if (message.role !== 'assistant') return
    seen.stripped ??= new Set()
    seen.stripped.add(message.thinking === '' ? end : chained(at, strippedDigest(message)))
  }

  /** Digest of the conversation that has these tools and no message. */
  private beginning(tools: string): string {
    let digest = this.beginnings.get(tools)
    if (digest === undefined) {
      digest = chained('', tools)
      this.beginnings.set(tools, digest)
    }
    return digest
  }

  private at(digest: string): Seen {
    let seen = this.seen.get(digest)
    if (seen === undefined) {
      seen = { asked: 0 }
      this.seen.set(digest, seen)
    }
    return seen
  }
}

/** Extends the conversation with the digest `at` and the record `seen` by a message. */
function stepFrom({ latest }: Seen, at: string, message: Message): Step {
  if (latest !== undefined && isSameText(latest.message, message)) return latest
  const own = messageDigest(message)
  return { message, own, end: chained(at, own) }
}
