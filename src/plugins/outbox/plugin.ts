import { type LazyWorker, lazyWorker } from '../../core/lazy-worker.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { OutboxOptions, OutboxWorker } from './outbox-worker.ts'

/** Returns undefined if no plugin has an outbox. The code is loaded with the first request. */
export function createOutbox(
  options: OutboxOptions,
): (LazyWorker<OutboxWorker> & { readonly plugin: BuiltInPlugin }) | undefined {
  const outboxes = options.plugins?.flatMap(({ name, outbox }) => (outbox === undefined ? [] : { name, outbox })) ?? []
  if (outboxes.length === 0) return undefined
  const create = async (): Promise<OutboxWorker> =>
    new (await import('./outbox-worker.ts')).OutboxWorker({ ...options, outboxes })
  const worker = lazyWorker('outboxes', create, options.log)
  const { loaded, plugin } = worker
  return { ...worker, plugin: { ...plugin, settledEntries: (...settled) => loaded()?.entriesOf(...settled) ?? [] } }
}
