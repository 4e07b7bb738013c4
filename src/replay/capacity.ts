/** Limits of all recordings together. Each UTF-16 unit counts as two bytes. */
export interface CapacityLimits {
  /** Maximum number of simultaneous recordings. */
  readonly entries: number
  readonly bytes: number
  readonly bytesOfOne: number
}

/**
 * Capacity shared by all recordings in progress. Further recordings of one owner are accepted only while the owner uses
 * at most the amount that remains free, so that one owner cannot block the others.
 */
interface RecordingCapacity {
  /** Reserves capacity for one recording. Returns undefined if the owner may not have another recording. */
  reserve(owner: string): CapacityShare | undefined
  readonly entries: number
  readonly bytes: number
}

export interface CapacityShare {
  /** Takes bytes of the capacity. Returns false without taking any if they exceed a limit. */
  take(bytes: number): boolean
  /** Releases the capacity. Further calls have no effect. */
  release(): void
}

interface OwnerUsage {
  entries: number
  bytes: number
}

export function createRecordingCapacity(bounds: CapacityLimits): RecordingCapacity {
  const owners = new Map<string, OwnerUsage>()
  let entries = 0
  let bytes = 0

  function reserve(owner: string): CapacityShare | undefined {
    const own = owners.get(owner) ?? { entries: 0, bytes: 0 }
    const free = bounds.entries - entries - 1
    if (free < 0 || (own.entries > 0 && own.entries + 1 > free)) return undefined
    owners.set(owner, own)
    own.entries += 1
    entries += 1
    let ownBytes = 0
    let isReleased = false

    function fits(more: number): boolean {
      const left = bounds.bytes - bytes - more
      if (left < 0 || ownBytes + more > bounds.bytesOfOne) return false
      return own.entries === 1 || own.bytes + more <= left
    }

    return {
      take: (more) => {
        if (isReleased || !fits(more)) return false
        ownBytes += more
        own.bytes += more
        bytes += more
        return true
      },
      release: () => {
        if (isReleased) return
        isReleased = true
        entries -= 1
        bytes -= ownBytes
        own.entries -= 1
        own.bytes -= ownBytes
        if (own.entries === 0) owners.delete(owner)
      },
    }
  }

  return {
    reserve: reserve,
    get entries() {
      return entries
    },
    get bytes() {
      return bytes
    },
  }
}
