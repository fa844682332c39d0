/**
 * The KV cache of a simulated engine, counted in blocks: what running sequences refer to, what is only kept, what is free.
 *
 * in   sequences that are opened, grow and are closed        out  whether there is room, and what of a prefix is there
 * Invariant: referenced + kept + free = capacity, none negative. Kept blocks are evicted in the order in which they were
 * closed, a prefix from its end. A group's prompt is one entry that all its members refer to, in whole blocks.
 */
import { capacityBlocks, type EngineModel } from './engineModel'

/** What a sequence holds. Written by the cache alone. */
export interface Hold {
  readonly trajectory: string
  readonly group: string
  readonly promptTokens: number
  /** Blocks of the group's prompt at its beginning that it refers to. */
  sharedBlocks: number
  ownBlocks: number
  /** It computes the group's prompt for all: its first blocks become the shared ones. */
  builds: boolean
}

/** Blocks that may be evicted: a trajectory's own between its turns, or a prompt that no running sequence refers to. */
interface Kept {
  readonly owner: Map<string, Kept>
  readonly key: string
  /** Blocks of the prompt that come before these. */
  readonly behind: number
  blocks: number
}

interface Prompt extends Kept {
  readonly tokens: number
  references: number
  builder: Hold | null
}

export class KvCache {
  readonly blocks: number
  readonly blockTokens: number
  referencedBlocks = 0
  keptBlocks = 0
  /** What opened contexts found there, tokens. */
  foundTokens = 0
  private readonly sharing: boolean
  private readonly prompts = new Map<string, Kept>()
  private readonly trajectories = new Map<string, Kept>()
  /** Least recently closed first. */
  private readonly evictable = new Set<Kept>()

  constructor(model: EngineModel) {
    this.blocks = capacityBlocks(model)
    this.blockTokens = model.blockTokens
    this.sharing = model.prefixSharing
  }

  /** Free ones and those that may be evicted. */
  get availableBlocks(): number {
    return this.blocks - this.referencedBlocks
  }

  get referencedTokens(): number {
    return this.referencedBlocks * this.blockTokens
  }

  /** Tokens in front of a context of `tokens` that are there. At least one is left to compute. */
  cachedTokens(hold: Hold, tokens: number): number {
    return this.look(hold, tokens).blocks * this.blockTokens
  }

  /** Whether a context of `tokens` could be opened and computed as a whole. */
  hasRoomFor(hold: Hold, tokens: number): boolean {
    return this.missingBlocks(hold, tokens) <= this.availableBlocks
  }

  /** Blocks that opening a context of `tokens` takes out of the available ones, for what is there and what is not. */
  missingBlocks(hold: Hold, tokens: number): number {
    const { prompt, shared } = this.look(hold, tokens)
    const referenced = prompt !== undefined && prompt.references > 0 ? shared : 0
    return this.blocksOf(tokens) - referenced
  }

  /** Takes what is there of a context of `tokens`; returns how many tokens that is. */
  open(hold: Hold, tokens: number): number {
    const { prompt, shared, own, blocks } = this.look(hold, tokens)
    if (own !== undefined) this.drop(own)
    if (shared > 0) this.refer(prompt!)
    hold.sharedBlocks = shared
    hold.ownBlocks = 0
    hold.builds = false
    this.take(hold, blocks - shared)
    if (this.sharing) this.startBuilding(hold, shared)
    this.foundTokens += blocks * this.blockTokens
    return blocks * this.blockTokens
  }

  /** Makes room for the first `tokens` of a sequence; false, and nothing changed, where there is none. */
  grow(hold: Hold, tokens: number): boolean {
    const more = this.blocksOf(tokens) - hold.sharedBlocks - hold.ownBlocks
    if (more <= 0) return true
    if (more > this.availableBlocks) return false
    this.take(hold, more)
    return true
  }

  /** The sequence no longer runs. Whole blocks of its first `keepTokens` are kept until others need the room. */
  close(hold: Hold, keepTokens: number): void {
    const whole = Math.floor(keepTokens / this.blockTokens)
    const blocks = Math.min(Math.max(0, whole - hold.sharedBlocks), hold.ownBlocks)
    this.referencedBlocks -= hold.ownBlocks
    const before = this.trajectories.get(hold.trajectory)
    if (before !== undefined) this.drop(before)
    if (blocks > 0) {
      const kept = { owner: this.trajectories, key: hold.trajectory, behind: hold.sharedBlocks, blocks }
      this.trajectories.set(hold.trajectory, kept)
      this.keep(kept)
    }
    const prompt = this.prompts.get(hold.group) as Prompt | undefined
    if (prompt?.builder === hold) prompt.builder = null
    if (hold.sharedBlocks > 0) this.unrefer(prompt!)
    else if (prompt?.blocks === 0 && prompt.builder === null) this.prompts.delete(hold.group)
    hold.sharedBlocks = 0
    hold.ownBlocks = 0
    hold.builds = false
  }

  /** Forgets all that is kept: weights have changed. */
  forget(): void {
    for (const kept of [...this.evictable]) this.drop(kept)
  }

  private blocksOf(tokens: number): number {
    return Math.ceil(tokens / this.blockTokens)
  }

  /** Blocks of the prompt that every member finds: the block of its last token is computed again by each. */
  private wholeBlocks({ promptTokens }: Hold): number {
    return Math.floor((promptTokens - 1) / this.blockTokens)
  }

  private look(hold: Hold, tokens: number) {
    const most = Math.floor((tokens - 1) / this.blockTokens)
    const found = this.sharing ? (this.prompts.get(hold.group) as Prompt | undefined) : undefined
    const prompt = found?.tokens === hold.promptTokens ? found : undefined
    const own = this.trajectories.get(hold.trajectory)
    // Own blocks are worth something only behind all of the prompt that they were computed behind.
    if (own !== undefined && own.behind <= (prompt?.blocks ?? 0) && own.behind + own.blocks > 0 && own.behind <= most) {
      return { prompt, shared: own.behind, own, blocks: Math.min(most, own.behind + own.blocks) }
    }
    const shared = Math.min(most, prompt?.blocks ?? 0)
    return { prompt, shared, own, blocks: shared }
  }

  private startBuilding(hold: Hold, shared: number): void {
    const whole = this.wholeBlocks(hold)
    let prompt = this.prompts.get(hold.group) as Prompt | undefined
    if (hold.ownBlocks > 0 || whole === shared) return
    if (prompt === undefined) {
      const fresh = { owner: this.prompts, key: hold.group, behind: 0, blocks: 0 }
      prompt = { ...fresh, tokens: hold.promptTokens, references: 0, builder: null }
      this.prompts.set(hold.group, prompt)
    }
    if (prompt.tokens !== hold.promptTokens || prompt.builder !== null || prompt.blocks !== shared) return
    prompt.builder = hold
    hold.builds = true
  }

  private take(hold: Hold, more: number): void {
    this.evict(more - (this.blocks - this.referencedBlocks - this.keptBlocks))
    this.referencedBlocks += more
    if (!hold.builds) {
      hold.ownBlocks += more
      return
    }
    const prompt = this.prompts.get(hold.group) as Prompt
    const whole = this.wholeBlocks(hold)
    const common = Math.min(more, whole - prompt.blocks)
    if (common > 0) {
      // Its first block makes the builder one of those that refer to the prompt.
      if (hold.sharedBlocks === 0) prompt.references++
      prompt.blocks += common
      hold.sharedBlocks += common
    }
    hold.ownBlocks += more - Math.max(0, common)
    if (prompt.blocks === whole) {
      prompt.builder = null
      hold.builds = false
    }
  }

  private evict(blocks: number): void {
    let left = blocks
    for (const kept of this.evictable) {
      if (left <= 0) return
      const gone = Math.min(left, kept.blocks)
      kept.blocks -= gone
      this.keptBlocks -= gone
      left -= gone
      if (kept.blocks === 0) this.drop(kept)
    }
  }

  private keep(kept: Kept): void {
    this.evictable.add(kept)
    this.keptBlocks += kept.blocks
  }

  private drop(kept: Kept): void {
    if (this.evictable.delete(kept)) this.keptBlocks -= kept.blocks
    kept.owner.delete(kept.key)
  }

  private refer(prompt: Prompt): void {
    if (prompt.references++ > 0) return
    this.evictable.delete(prompt)
    this.keptBlocks -= prompt.blocks
    this.referencedBlocks += prompt.blocks
  }

  private unrefer(prompt: Prompt): void {
    if (--prompt.references > 0) return
    this.referencedBlocks -= prompt.blocks
    this.keep(prompt)
  }
}
