import { isJsonObject } from '../core/json.ts'
import type { Store } from '../core/ports.ts'
import type { KeptTurn, WriteContext } from '../formats/format.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { Answered, Turns } from './stages.ts'

/** How long a turn is kept, from the moment it was answered. */
const KEPT_MS = 24 * 60 * 60 * 1000
/** A longer conversation is not kept, in UTF-16 units of its JSON. */
const LONGEST = 4 * 1024 * 1024
/** Each id is one read of the store. */
const MOST_REFERENCES = 64

/** Each turn holds its whole conversation: it can be continued when the turns before it are gone. */
export function createTurns(store: Pick<Store, 'get' | 'set' | 'delete'>): Turns {
  const find = async (key: VirtualKey, id: string): Promise<KeptTurn | undefined> => {
    const text = isKeptId(id) ? await store.get(nameOf(key, id)) : undefined
    return text === undefined ? undefined : parseTurn(text)
  }
  return {
    find,
    recall: async ({ turns }, key, body) => {
      if (turns === undefined) return body
      const kept = new Map<string, KeptTurn>()
      for (const id of turns.refersTo(body).slice(0, MOST_REFERENCES)) {
        const turn = await find(key, id)
        if (turn !== undefined) kept.set(id, turn)
      }
      return turns.recall(body, kept)
    },
    keep: async (answered, told) => {
      const turn = told === undefined ? undefined : answered.format.turns?.keep(writeContext(answered), told)
      if (turn === undefined || !isKeptId(turn.id)) return
      const text = JSON.stringify(turn)
      if (text.length > LONGEST) return
      // Whoever refers to a turn that could not be kept is told that it is not there.
      await store.set(nameOf(answered.key, turn.id), text, { ttlMs: KEPT_MS }).catch(() => {})
    },
    forget: async (key, id) => isKeptId(id) && (await store.delete(nameOf(key, id))),
  }
}

/** What the writers of answers must know of a request. */
export function writeContext({ prompt, startedAt, id, asked }: Answered): WriteContext {
  return { prompt, created: Math.floor(startedAt / 1000), requestId: id, asked }
}

function isKeptId(id: string): boolean {
  return /^[\w-]{1,200}$/.test(id)
}

function nameOf(key: VirtualKey, id: string): string {
  return `turn:${key.id}:${id}`
}

function parseTurn(text: string): KeptTurn | undefined {
  const value: unknown = JSON.parse(text)
  if (!isJsonObject(value)) return undefined
  const { id, input, answer } = value
  if (typeof id !== 'string' || !Array.isArray(input) || !isJsonObject(answer)) return undefined
  return { id, input, answer }
}
