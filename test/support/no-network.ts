import type { Transport } from '../../src/core/ports.ts'

/** A transport for tests that call no upstream: every call fails. */
export const noNetwork: Transport = (_request, handler) => {
  let isOver = false
  queueMicrotask(() => {
    if (!isOver) handler.onError(new Error('no network'))
  })
  return {
    pause: () => {},
    resume: () => {},
    abort: () => {
      isOver = true
    },
  }
}
