import { lazy, type MaybePromise } from './async.ts'

/** Work in the background whose code is loaded with its first use. */
export interface LazyWorker<Worker> {
  /** Resolves with undefined if the code cannot be loaded. Requests are then served without it. */
  readonly load: () => MaybePromise<Worker | undefined>
  /** The worker, if it is loaded. */
  readonly loaded: () => Worker | undefined
  /** Starts the worker with the first call. */
  readonly start: () => void
  /** The hook of a plugin that ends the worker. */
  readonly plugin: { readonly close: () => Promise<void> }
}

/** @param what In the plural, for the log. */
export function lazyWorker<Worker extends { start(): void; close(): Promise<void> }>(
  what: string,
  create: () => Promise<Worker>,
  log: { failure(event: string, cause: unknown): void },
): LazyWorker<Worker> {
  let loaded: Worker | undefined
  const loadOnce = lazy(async () => (loaded = await create()))
  const load = (): MaybePromise<Worker | undefined> =>
    loaded ??
    loadOnce().catch((cause: unknown): undefined => {
      log.failure(`${what} could not be loaded`, cause)
    })
  const start = lazy(async () => (await load())?.start())
  return {
    load,
    loaded: () => loaded,
    start: () => void start(),
    plugin: { close: async () => loaded?.close() },
  }
}
