import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { after, TimerWheel } from '../../src/http/transport-undici.ts'

const TICK_MS = 100

beforeEach(() => {
  vi.useFakeTimers()
})

afterEach(() => {
  vi.useRealTimers()
})

/** Adds a deadline that records its delay after the due time, in milliseconds. */
function addTo(wheel: TimerWheel, ms: number, called: number[]): () => void {
  const due = performance.now() + ms
  return wheel.add(ms, () => called.push(performance.now() - due), false)
}

describe('TimerWheel', () => {
  it('calls back at most one tick late and never early', () => {
    const wheel = new TimerWheel()
    const late: number[] = []
    for (let ms = 1_000; ms < 1_250; ms += 7) {
      addTo(wheel, ms, late)
      vi.advanceTimersByTime(13)
    }

    vi.advanceTimersByTime(2_000)

    expect(late).toHaveLength(36)
    expect(Math.min(...late)).toBeGreaterThanOrEqual(0)
    expect(Math.max(...late)).toBeLessThanOrEqual(TICK_MS)
  })

  it('calls back in the order of the due times', () => {
    const wheel = new TimerWheel()
    const order: string[] = []
    wheel.add(9_000, () => order.push('third'), false)
    wheel.add(1_000, () => order.push('first'), false)
    wheel.add(5_000, () => order.push('second'), false)

    vi.advanceTimersByTime(10_000)

    expect(order).toEqual(['first', 'second', 'third'])
  })

  it('does not call back a canceled deadline, also when it is canceled twice', () => {
    const wheel = new TimerWheel()
    const called: number[] = []
    const cancel = addTo(wheel, 1_000, called)
    addTo(wheel, 1_000, called)

    cancel()
    cancel()
    vi.advanceTimersByTime(2_000)

    expect(called).toHaveLength(1)
  })

  it('does not call back a deadline that another one of the same tick cancels', () => {
    const wheel = new TimerWheel()
    const called: string[] = []
    let cancel = (): void => {}
    wheel.add(1_000, () => cancel(), false)
    cancel = wheel.add(1_000, () => called.push('canceled'), false)

    vi.advanceTimersByTime(2_000)

    expect(called).toEqual([])
  })

  it('calls back the deadlines behind one that throws', () => {
    const wheel = new TimerWheel()
    const called: number[] = []
    const fault = new Error('a fault of the callback')
    wheel.add(
      1_000,
      () => {
        throw fault
      },
      false,
    )
    addTo(wheel, 1_000, called)
    addTo(wheel, 5_000, called)

    expect(() => vi.advanceTimersByTime(2_000)).toThrow(fault)
    vi.advanceTimersByTime(6_000)

    expect(called).toHaveLength(2)
  })

  it('calls back a deadline that a callback adds', () => {
    const wheel = new TimerWheel()
    const called: number[] = []
    wheel.add(1_000, () => addTo(wheel, 1_000, called), false)

    vi.advanceTimersByTime(1_100)
    expect(called).toEqual([])
    vi.advanceTimersByTime(1_100)

    expect(called).toHaveLength(1)
  })

  it('has one timer for all deadlines', () => {
    const wheel = new TimerWheel()
    const called: number[] = []
    for (let ms = 1_000; ms < 20_000; ms += 50) addTo(wheel, ms, called)

    expect(vi.getTimerCount()).toBe(1)
    vi.advanceTimersByTime(21_000)

    expect(called).toHaveLength(380)
    expect(vi.getTimerCount()).toBe(0)
  })
})

describe('the timer of a wheel', () => {
  it('keeps the process alive only while a deadline in the foreground waits', () => {
    vi.useRealTimers()
    const wheel = new TimerWheel()
    const others = process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length
    const alive = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length - others

    const cancelBackground = wheel.add(60_000, () => {}, true)
    expect(alive()).toBe(0)
    const cancelFirst = wheel.add(60_000, () => {}, false)
    const cancelSecond = wheel.add(30_000, () => {}, false)
    expect(alive()).toBe(1)
    cancelFirst()
    expect(alive()).toBe(1)
    cancelSecond()
    expect(alive()).toBe(0)
    cancelBackground()
    wheel.add(60_000, () => {}, false)()
    expect(alive()).toBe(0)
  })
})

describe('after', () => {
  it('is exact for waits of less than a second', () => {
    const called: number[] = []
    for (const ms of [0, 1, 49, 999]) after(ms, () => called.push(ms))

    vi.advanceTimersByTime(998)
    expect(called).toEqual([0, 1, 49])
    vi.advanceTimersByTime(1)

    expect(called).toEqual([0, 1, 49, 999])
  })
})
