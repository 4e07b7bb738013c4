/** How much all recordings together may hold, counted as two bytes for each UTF-16 unit. */
export interface RoomBounds {
  /** Recordings at once. */
  readonly entries: number
  readonly bytes: number
  readonly bytesOfOne: number
}

/** Shared by recordings that are being made. */
export interface Room {
  /** A place for one recording, undefined when all are taken. */
  enter(): Place | undefined
  readonly entries: number
  readonly bytes: number
}

export interface Place {
  /** False when so much more would pass a bound; then nothing is taken. */
  take(bytes: number): boolean
  /** Gives back everything. Only the first call counts. */
  leave(): void
}

export function createRoom(bounds: RoomBounds): Room {
  let entries = 0
  let bytes = 0

  function enter(): Place | undefined {
    if (entries >= bounds.entries) return undefined
    entries += 1
    let mine = 0
    let hasLeft = false
    return {
      take: (more) => {
        if (hasLeft || mine + more > bounds.bytesOfOne || bytes + more > bounds.bytes) return false
        mine += more
        bytes += more
        return true
      },
      leave: () => {
        if (hasLeft) return
        hasLeft = true
        entries -= 1
        bytes -= mine
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
