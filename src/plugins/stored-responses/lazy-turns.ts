import { lazy } from '../../core/async.ts'
import type { Runtime } from '../../core/ports.ts'
import type { Store } from '../../core/store.ts'
import { createWriteContext } from '../../kernel/exchange.ts'
import type { Turns } from '../../kernel/services.ts'

export function lazyTurns(store: Store, runtime: Pick<Runtime, 'now'>): Turns {
  const load = lazy(async () => (await import('./turns.ts')).createTurns(store))
  return {
    recall: ({ turns: format }, key, { body, received }) =>
      format === undefined ? { body, received } : load().then((turns) => turns.recall(format, key, { body, received })),
    store: (answered, serialized) => {
      const { turns: format } = answered.format
      if (format === undefined || serialized === undefined) return undefined
      const turn = format.turnToStore(createWriteContext(answered, runtime), serialized)
      return turn === undefined ? undefined : load().then((turns) => turns.store(answered, format, turn))
    },
    find: async (key, id) => (await load()).find(key, id),
    findInput: async (key, id) => (await load()).findInput(key, id),
    findProvider: async (key, id) => (await load()).findProvider(key, id),
    storeProvider: async (key, ids, provider) => (await load()).storeProvider(key, ids, provider),
    setUnsettled: async (key, id, isUnsettled) => (await load()).setUnsettled(key, id, isUnsettled),
    isUnsettled: async (key, id) => (await load()).isUnsettled(key, id),
    delete: async (key, id) => (await load()).delete(key, id),
  }
}
