/** Resolution of the wheel, in milliseconds. */
const TICK_MS = 100
/** Maximum delay of a Node timer, in milliseconds. Longer delays overflow. */
const MAX_TIMER_MS = 2 ** 31 - 1

/**
 * An element of the circular list of one tick's deadlines. The head of the list has no callback. In an empty list, both
 * neighbors of the head are the head itself. Both neighbors of a removed deadline are the deadline itself.
 */
class Deadline {
  previous: Deadline
  next: Deadline
  readonly tick: number
  readonly callback: () => void
  readonly isBackground: boolean

  constructor(tick: number, callback: () => void, isBackground: boolean) {
    this.previous = this
    this.next = this
    this.tick = tick
    this.callback = callback
    this.isBackground = isBackground
  }
}

/**
 * Runs many deadlines on one platform timer. Most deadlines are canceled before they are due, so canceling does not
 * reset the timer: it fires anyway and is then set to the next tick with deadlines.
 */
export class TimerWheel {
  /** The head of the list for each tick. Empty lists are removed when the timer fires. */
  readonly #ticks = new Map<number, Deadline>()
  #timer: NodeJS.Timeout | undefined
  #timerTick = Infinity
  /** Number of deadlines that keep the process alive. */
  #foregroundCount = 0

  /** Calls `callback` after `ms` milliseconds, at most 100 ms late. Returns a function that cancels the deadline. */
  add(ms: number, callback: () => void, isBackground: boolean): () => void {
    const nowMs = performance.now()
    const tick = Math.ceil((nowMs + ms) / TICK_MS)
    let head = this.#ticks.get(tick)
    if (head === undefined) this.#ticks.set(tick, (head = new Deadline(tick, noop, true)))
    const deadline = new Deadline(tick, callback, isBackground)
    deadline.previous = head.previous
    deadline.next = head
    head.previous.next = deadline
    head.previous = deadline
    if (tick < this.#timerTick) this.#arm(tick, nowMs)
    if (!isBackground && this.#foregroundCount++ === 0) this.#timer?.ref()
    return () => this.#remove(deadline)
  }

  #remove(deadline: Deadline): void {
    const { previous, next } = deadline
    if (next === deadline) return
    previous.next = next
    next.previous = previous
    deadline.previous = deadline.next = deadline
    if (!deadline.isBackground && --this.#foregroundCount === 0) this.#timer?.unref()
  }

  #arm(tick: number, nowMs: number): void {
    clearTimeout(this.#timer)
    const ms = Math.ceil(tick * TICK_MS - nowMs)
    this.#timer = setTimeout(() => this.#fire(), Math.min(Math.max(ms, 0), MAX_TIMER_MS))
    this.#timerTick = tick
    if (this.#foregroundCount === 0) this.#timer?.unref()
  }

  #fire(): void {
    this.#timerTick = Infinity
    try {
      this.#callDue(performance.now() / TICK_MS)
    } finally {
      // Also runs if a callback threw, because the remaining deadlines of the tick are still due.
      const next = this.#nextTick()
      if (next < this.#timerTick) this.#arm(next, performance.now())
    }
  }

  #callDue(currentTick: number): void {
    const due = [...this.#ticks.values()].filter(({ tick }) => tick <= currentTick).toSorted((a, b) => a.tick - b.tick)
    for (const head of due) {
      while (head.next !== head) {
        const { next } = head
        this.#remove(next)
        next.callback()
      }
    }
  }

  #nextTick(): number {
    let next = Infinity
    for (const head of this.#ticks.values()) {
      if (head.next === head) this.#ticks.delete(head.tick)
      else if (head.tick < next) next = head.tick
    }
    return next
  }
}

function noop(): void {}
