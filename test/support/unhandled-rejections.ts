/** Runs a function, and returns the reasons of the promise rejections that had no handler. */
export async function collectUnhandledRejections(run: () => unknown): Promise<readonly unknown[]> {
  const reasons: unknown[] = []
  const listeners = process.listeners('unhandledRejection')
  process.removeAllListeners('unhandledRejection').on('unhandledRejection', (reason) => void reasons.push(reason))
  try {
    await run()
    await new Promise((resolve) => setImmediate(resolve))
  } finally {
    process.removeAllListeners('unhandledRejection')
    for (const listener of listeners) process.on('unhandledRejection', listener)
  }
  return reasons
}
