import type { CapacityShare } from './event-buffer.ts'

const MIB = 1024 * 1024
export const MAX_BYTES_PER_STREAM: number = 8 * MIB

interface CapacityLimits {
  readonly entries: number
  readonly bytes: number
  readonly maxBytesPerStream: number
}

interface OwnerUsage {
  entries: number
  bytes: number
}

/** An owner with several recordings may use at most as much as remains free, so that it cannot block the others. */
export class EventCapacity {
  entries = 0
  bytes = 0
  readonly #limits: CapacityLimits
  readonly #usages = new Map<string, OwnerUsage>()

  constructor({
    entries = 10_000,
    bytes = 64 * MIB,
    maxBytesPerStream = MAX_BYTES_PER_STREAM,
  }: Partial<CapacityLimits>) {
    this.#limits = { entries, bytes, maxBytesPerStream }
  }

  reserve(owner: string): CapacityShare | undefined {
    const usage = this.#usages.get(owner) ?? { entries: 0, bytes: 0 }
    const freeEntries = this.#limits.entries - this.entries - 1
    if (freeEntries < 0 || (usage.entries > 0 && usage.entries + 1 > freeEntries)) return undefined
    this.#usages.set(owner, usage)
    usage.entries += 1
    this.entries += 1
    let recordingBytes = 0
    let isReleased = false

    const fits = (added: number): boolean => {
      const freeBytes = this.#limits.bytes - this.bytes - added
      if (freeBytes < 0 || recordingBytes + added > this.#limits.maxBytesPerStream) return false
      return usage.entries === 1 || usage.bytes + added <= freeBytes
    }

    return {
      reserve: (added) => {
        if (isReleased || !fits(added)) return false
        recordingBytes += added
        usage.bytes += added
        this.bytes += added
        return true
      },
      release: () => {
        if (isReleased) return
        isReleased = true
        this.entries -= 1
        this.bytes -= recordingBytes
        usage.entries -= 1
        usage.bytes -= recordingBytes
        if (usage.entries === 0) this.#usages.delete(owner)
      },
    }
  }
}
