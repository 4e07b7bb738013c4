import { createHook } from 'node:async_hooks'
import type { Session } from 'node:inspector/promises'

/** Counts events between `start` and `stop`. */
export interface Counter<Count> {
  readonly start: () => Promise<void>
  readonly stop: () => Promise<Count>
}

export interface Entered {
  /** Paths relative to the project root. */
  readonly files: readonly string[]
  /** `file:name`, or `file:offset` for a function without a name. */
  readonly functions: readonly string[]
}

/** Counts the functions under `sourceUrl` that are called. */
export function coverageCounter(session: Session, sourceUrl: string): Counter<Entered> {
  return {
    start: async () => {
      await session.post('Profiler.enable')
      await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
    },
    stop: async () => {
      const { result } = await session.post('Profiler.takePreciseCoverage')
      await session.post('Profiler.stopPreciseCoverage')
      const ours = result.filter(({ url }) => url.startsWith(sourceUrl))
      const functions = ours.flatMap((script) => {
        const file = `src/${script.url.slice(sourceUrl.length).replace(/\.mjs$/, '.ts')}`
        return script.functions
          .filter(({ ranges }) => (ranges[0]?.count ?? 0) > 0)
          .map(({ functionName, ranges }) => `${file}:${functionName || ranges[0]?.startOffset}`)
      })
      return { files: [...new Set(functions.map((name) => name.replace(/:[^:]*$/, '')))], functions }
    },
  }
}

export interface Created {
  /** Timeouts, intervals and immediates. */
  readonly timers: number
  /** Promises; each `await` creates at least one. */
  readonly promises: number
}

/**
 * Counts the timers and promises that code under `sourceUrl` creates, also by a call into Node, but not those of
 * undici.
 */
export function resourceCounter(sourceUrl: string): Counter<Created> {
  let timers = 0
  let promises = 0
  const hook = createHook({
    init(_id, type) {
      const isTimer = type === 'Timeout' || type === 'Immediate'
      if (!isTimer && type !== 'PROMISE') return
      if (!isCalledFrom(sourceUrl)) return
      if (isTimer) timers += 1
      else promises += 1
    },
  })
  return {
    start: async () => {
      Error.stackTraceLimit = 50
      timers = 0
      promises = 0
      hook.enable()
    },
    stop: async () => {
      hook.disable()
      return { timers, promises }
    },
  }
}

/** Checks whether the innermost stack frame outside Node and this file is under `sourceUrl`. */
function isCalledFrom(sourceUrl: string): boolean {
  const frames = (new Error('for its stack').stack ?? '').split('\n').slice(1)
  // Frames of CommonJS packages have a path instead of a file URL.
  const isCode = (frame: string): boolean => frame.includes('file://') || frame.includes('/node_modules/')
  const running = frames.filter((frame) => isCode(frame) && !frame.includes(import.meta.url))
  const innermost = running.find((frame) => !/^\s*at async /.test(frame))
  return innermost?.includes(sourceUrl) ?? false
}

/** Counts the bytes allocated on the heap, including bytes that were collected. */
export function allocationCounter(session: Session): Counter<number> {
  return {
    start: async () => {
      await session.post('HeapProfiler.startSampling', {
        samplingInterval: 8192,
        includeObjectsCollectedByMajorGC: true,
        includeObjectsCollectedByMinorGC: true,
      })
    },
    stop: async () => {
      const { profile } = await session.post('HeapProfiler.stopSampling')
      return sizeOf(profile.head)
    },
  }
}

interface Allocations {
  readonly selfSize: number
  readonly children: readonly Allocations[]
}

function sizeOf({ selfSize, children }: Allocations): number {
  return children.reduce((sum, child) => sum + sizeOf(child), selfSize)
}
