import { lazy, type MaybePromise } from '../core/async.ts'
import { speaks } from '../core/ports.ts'
import type { WriteContext } from '../formats/format.ts'
import type { Answered, Parsed } from './exchange.ts'
import type { KeptTurnStore } from './kept-turns.ts'
import type { Services, KeptRequests } from './services.ts'

/** The code for formats with turns is loaded when it is first needed. */
export function createTurns(store: KeptTurnStore): KeptRequests {
  const load = lazy(async () => {
    const { createKeptTurns } = await import('./kept-turns.ts')
    return createKeptTurns(store)
  })
  return {
    findHolder: async (key, id) => (await load()).findHolder(key, id),
    hold: async (key, ids, provider) => (await load()).hold(key, ids, provider),
    findInput: async (key, id) => (await load()).findInput(key, id),
    find: async (key, id) => (await load()).find(key, id),
    forget: async (key, id) => (await load()).forget(key, id),
    recall: ({ turns }, key, body) =>
      turns === undefined ? { body } : load().then((kept) => kept.recall(turns, key, body)),
    keep: (answered, serialized) => {
      const { turns } = answered.format
      if (turns === undefined || serialized === undefined) return undefined
      const turn = turns.keep(writeContext(answered), serialized)
      if (turn === undefined) return undefined
      const holder = holderOf(answered)
      return load().then((kept) =>
        holder === undefined
          ? kept.keep(answered.key, turn)
          : kept.hold(answered.key, turns.idsOf(turn.answer), holder),
      )
    },
  }
}

/** Returns the provider that stores the answer, because it answered in the caller's format. */
export function holderOf({ plan, route, format }: Answered): string | undefined {
  if (plan.kind === 'replay' || route === undefined || !speaks(route.provider, format.dialect)) return undefined
  return route.provider.name
}

/** Stores an answered and settled request. The answer is sent also if that fails. */
export function keepTurn(
  answered: Answered,
  serialized: string | undefined,
  { turns, observers }: Pick<Services, 'turns' | 'observers'>,
): MaybePromise<void> {
  const failed = (cause: unknown): void =>
    observers.failed('an answered request could not be kept for later ones', cause, { request_id: answered.id })
  try {
    const kept = turns.keep(answered, serialized)
    return kept instanceof Promise ? kept.catch(failed) : kept
  } catch (cause) {
    failed(cause)
  }
}

/** Returns a new id for an answer. Undefined in formats whose answers have the id of the upstream. */
export function ownAnswerId({ format, id }: Pick<Parsed, 'format' | 'id'>, { runtime }: Services): string | undefined {
  return format.answerId?.(runtime.uuid().replaceAll('-', '')) ?? format.turns?.answerId(id)
}

/** The fields of a request that the writers of answers need. */
export function writeContext({ prompt, startedAt, id, requestBody }: Parsed): WriteContext {
  return { prompt, created: Math.floor(startedAt / 1000), requestId: id, requestBody }
}
