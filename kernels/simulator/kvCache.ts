/**
 * Simulates an engine's KV cache in blocks: referenced by running sequences, kept for later, or free.
 *
 * in   sequences that are opened, grow and are closed
 * out  whether there is room, and how much of a prefix is cached
 * A group's prompt is one entry of whole blocks, shared by its members.
 * Invariant: referenced + kept + free = capacity, none negative. Kept blocks are evicted least recently closed first, a
 * prefix from its end.
 */
import { capacityBlocks, type EngineModel } from './engineModel'

/** Blocks of one sequence. Only the cache writes its fields. */
export interface Hold {
  readonly trajectory: string
  readonly group: string
  readonly promptTokens: number
  /** Number of blocks of the group's prompt that the sequence references. */
  sharedBlocks: number
  ownBlocks: number
  /** true: this sequence computes the group's prompt for all members, and its first blocks become the shared ones. */
  builds: boolean
}

/**
 * Blocks that can be evicted: a trajectory's own blocks between turns, or a prompt that no running sequence references.
 */
interface Kept {
  readonly owner: Map<string, Kept>
  readonly key: string
  /** Number of the prompt's blocks that precede these blocks. */
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
  /** Total number of tokens that opened contexts found in the cache. */
  foundTokens = 0
  private readonly sharing: boolean
  private readonly prompts = new Map<string, Kept>()
  private readonly trajectories = new Map<string, Kept>()
  /** Evictable blocks in the order of eviction: least recently closed first. */
  private readonly evictable = new Set<Kept>()

  constructor(model: EngineModel) {
    this.blocks = capacityBlocks(model)
    this.blockTokens = model.blockTokens
    this.sharing = model.prefixSharing
  }

  /** Number of free and evictable blocks. */
  get availableBlocks(): number {
    return this.blocks - this.referencedBlocks
  }

  get referencedTokens(): number {
    return this.referencedBlocks * this.blockTokens
  }

  /** Returns the number of leading tokens of a context that are cached. At least one token is left to compute. */
  cachedTokens(hold: Hold, tokens: number): number {
    return this.find(hold, tokens).blocks * this.blockTokens
  }

  /** Returns true if a context of `tokens` could be opened and computed completely. */
  hasRoomFor(hold: Hold, tokens: number): boolean {
    return this.missingBlocks(hold, tokens) <= this.availableBlocks
  }

  /**
   * Returns how many available blocks a context of `tokens` takes: all its blocks, cached or not, except those of a
   * prompt that running sequences reference already.
   */
  missingBlocks(hold: Hold, tokens: number): number {
    const { prompt, shared } = this.find(hold, tokens)
    const referenced = prompt !== undefined && prompt.references > 0 ? shared : 0
    return this.blocksOf(tokens) - referenced
  }

  /** Opens a sequence: references the cached part of its context, and returns that part's number of tokens. */
  open(hold: Hold, tokens: number): number {
    const { prompt, shared, own, blocks } = this.find(hold, tokens)
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

  /** Allocates blocks for the first `tokens` of a sequence. Returns false, and changes nothing, if there is no room. */
  grow(hold: Hold, tokens: number): boolean {
    const more = this.blocksOf(tokens) - hold.sharedBlocks - hold.ownBlocks
    if (more <= 0) return true
    if (more > this.availableBlocks) return false
    this.take(hold, more)
    return true
  }

  /** Closes a sequence. The whole blocks of its first `keepTokens` tokens stay cached until they are evicted. */
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

  /** Drops all kept blocks, since new weights make them useless. */
  clear(): void {
    for (const kept of [...this.evictable]) this.drop(kept)
  }

  private blocksOf(tokens: number): number {
    return Math.ceil(tokens / this.blockTokens)
  }

  /**
   * Returns the number of a prompt's blocks that members can share. Each member computes the block of the prompt's last
   * token itself.
   */
  private wholeBlocks({ promptTokens }: Hold): number {
    return Math.floor((promptTokens - 1) / this.blockTokens)
  }

  private find(hold: Hold, tokens: number) {
    const most = Math.floor((tokens - 1) / this.blockTokens)
    const found = this.sharing ? (this.prompts.get(hold.group) as Prompt | undefined) : undefined
    const prompt = found?.tokens === hold.promptTokens ? found : undefined
    const own = this.trajectories.get(hold.trajectory)
    // A trajectory's own blocks are useful only if all prompt blocks before them are still cached.
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
      // The sequence that computes the prompt counts as one of the prompt's references from the first block on.
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
