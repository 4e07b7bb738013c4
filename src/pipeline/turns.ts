import { GatewayError } from '../core/errors.ts'
import { asArray, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { Store } from '../core/ports.ts'
import type { KeptTurn, WriteContext } from '../formats/format.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { Answered, Turns } from './stages.ts'

/** How long a turn is kept, from the moment it was answered. */
const KEPT_MS = 24 * 60 * 60 * 1000
/** A longer conversation is not kept, in UTF-16 units of its JSON. */
const LONGEST = 4 * 1024 * 1024
/** Each one is a read of the store. */
const MOST_QUOTED = 1000

type Kept = Pick<Store, 'get' | 'set' | 'delete'>

/**
 * Each turn holds its whole conversation, so that it can be continued when the turns before it are gone. The answer
 * stands apart: it is read alone, and far more often.
 */
export function createTurns(store: Kept): Turns {
  const read = async (key: VirtualKey, id: string, what: Half): Promise<Json | undefined> => {
    const text = isKeptId(id) ? await store.get(nameOf(key, id, what)) : undefined
    return text === undefined ? undefined : (JSON.parse(text) as Json)
  }
  const find = async (key: VirtualKey, id: string): Promise<JsonObject | undefined> => {
    const answer = await read(key, id, 'answer')
    return isJsonObject(answer) ? answer : undefined
  }
  const findTurn = async (key: VirtualKey, id: string): Promise<KeptTurn | undefined> => {
    const [answer, input] = await Promise.all([find(key, id), read(key, id, 'input')])
    return answer === undefined || input === undefined ? undefined : { id, answer, input: asArray(input) }
  }
  return {
    find,
    recall: async ({ turns }, key, body) => {
      if (turns === undefined) return body
      const { continued, quoted } = turns.refersTo(body)
      if (quoted.length > MOST_QUOTED) throw tooMany()
      const answers = await Promise.all(quoted.map(async (id) => [id, await find(key, id)] as const))
      const found = answers.flatMap(([id, answer]) => (answer === undefined ? [] : [[id, answer] as const]))
      const turn = continued === undefined ? undefined : await findTurn(key, continued)
      return turns.recall(body, { continued: turn, quoted: new Map(found) })
    },
    keep: async (answered, told) => {
      const turn = told === undefined ? undefined : answered.format.turns?.keep(writeContext(answered), told)
      if (turn === undefined || !isKeptId(turn.id)) return
      const [input, answer] = [JSON.stringify(turn.input), JSON.stringify(turn.answer)]
      if (input.length + answer.length > LONGEST) return
      const halves = [['input', input] as const, ['answer', answer] as const]
      const written = halves.map(([half, text]) =>
        store.set(nameOf(answered.key, turn.id, half), text, { ttlMs: KEPT_MS }),
      )
      // Whoever refers to a turn that could not be kept is told that it is not there.
      await Promise.allSettled(written)
    },
    forget: async (key, id) => {
      if (!isKeptId(id)) return false
      const [wasThere] = await Promise.all(HALVES.map((half) => store.delete(nameOf(key, id, half))))
      return wasThere === true
    },
  }
}

type Half = 'answer' | 'input'

const HALVES: readonly Half[] = ['answer', 'input']

/** What the writers of answers must know of a request. */
export function writeContext({ prompt, startedAt, id, asked }: Answered): WriteContext {
  return { prompt, created: Math.floor(startedAt / 1000), requestId: id, asked }
}

function isKeptId(id: string): boolean {
  return /^[\w-]{1,200}$/.test(id)
}

function nameOf(key: VirtualKey, id: string, half: Half): string {
  return `turn:${key.id}:${id}:${half}`
}

function tooMany(): GatewayError {
  return new GatewayError(
    'invalid-request',
    `input refers to items of more than ${MOST_QUOTED} responses. Send the items themselves, or previous_response_id.`,
    { param: 'input' },
  )
}
