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
  enter(owner: string): CapacityShare | undefined
  readonly entries: number
  readonly bytes: number
}

export interface CapacityShare {
  /** Takes bytes of the capacity. Returns false without taking any if they exceed a limit. */
  take(bytes: number): boolean
  /** Releases the capacity. Further calls have no effect. */
  leave(): void
}

interface Held {
  entries: number
  bytes: number
}

export function createRecordingCapacity(bounds: CapacityLimits): RecordingCapacity {
  const owners = new Map<string, Held>()
  let entries = 0
  let bytes = 0

  function enter(owner: string): CapacityShare | undefined {
    const own = owners.get(owner) ?? { entries: 0, bytes: 0 }
    const free = bounds.entries - entries - 1
    if (free < 0 || (own.entries > 0 && own.entries + 1 > free)) return undefined
    owners.set(owner, own)
    own.entries += 1
    entries += 1
    let mine = 0
    let hasLeft = false

    function fits(more: number): boolean {
      const left = bounds.bytes - bytes - more
      if (left < 0 || mine + more > bounds.bytesOfOne) return false
      return own.entries === 1 || own.bytes + more <= left
    }

    return {
      take: (more) => {
        if (hasLeft || !fits(more)) return false
        mine += more
        own.bytes += more
        bytes += more
        return true
      },
      leave: () => {
        if (hasLeft) return
        hasLeft = true
        entries -= 1
        bytes -= mine
        own.entries -= 1
        own.bytes -= mine
        if (own.entries === 0) owners.delete(owner)
      },
    }
  }

  return {
    enter,
    get entries() {
      return entries
    },
    get bytes() {
      return bytes
    },
  }
}
