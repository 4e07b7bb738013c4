import { type LogEntry, type LogQuery, type NewLogEntry, type WriteOptions, quotaExceeded } from '../../core/store.ts'
import { storeFull } from '../bounds.ts'
import { decodeText, encodeText, entryRequest, fieldOf, listOf, numberOf, textOf, valueRequest } from '../wire.ts'
import type { RedisContext } from './client.ts'
import { APPEND, ENTRIES, GET, LIST, WRITE } from './scripts.ts'

export interface RedisValues {
  get(key: string): Promise<string | undefined>
  set(key: string, value: string, options?: WriteOptions): Promise<void>
  swap(key: string, expected: string | undefined, value: string | undefined, options?: WriteOptions): Promise<boolean>
  delete(key: string): Promise<boolean>
  list(prefix: string, after: string | undefined, limit: number): Promise<readonly string[]>
  append(log: string | readonly string[], entry: NewLogEntry): Promise<void>
  entries(log: string, query: LogQuery): Promise<readonly LogEntry[]>
}

interface Expectation {
  readonly swaps?: true
  readonly expected?: string
}

export function createValues({ run, limits }: RedisContext): RedisValues {
  async function write(
    key: string,
    value: string | undefined,
    options: WriteOptions,
    expectation: Expectation = {},
  ): Promise<unknown> {
    const reply = await run(WRITE, undefined, { ...expectation, ...valueRequest(key, value, options, limits) })
    if (fieldOf(reply, 'full') === true) throw options.quota === undefined ? storeFull() : quotaExceeded(options.quota)
    return reply
  }

  async function swap(
    key: string,
    expected: string | undefined,
    value: string | undefined,
    options: WriteOptions = {},
  ): Promise<boolean> {
    const expectation = expected === undefined ? {} : { expected: encodeText(expected) }
    return fieldOf(await write(key, value, options, { swaps: true, ...expectation }), 'done') === true
  }

  async function get(key: string): Promise<string | undefined> {
    const value = fieldOf(await run(GET, undefined, { key: encodeText(key) }), 'value')
    return value === undefined ? undefined : decodeText(textOf(value))
  }

  async function list(prefix: string, after: string | undefined, limit: number): Promise<readonly string[]> {
    const start = { prefix: encodeText(prefix), ...(after !== undefined && { after: encodeText(after) }) }
    const reply = await run(LIST, undefined, { ...start, limit })
    return listOf(fieldOf(reply, 'keys')).map((key) => decodeText(textOf(key)))
  }

  async function entries(log: string, { from, to, after = '', limit }: LogQuery): Promise<readonly LogEntry[]> {
    const reply = await run(ENTRIES, undefined, {
      log: encodeText(log),
      // An unknown cursor starts from the beginning.
      after: /^\d{1,16}$/.test(after) ? String(Number(after)) : '0',
      limit,
      ...(from !== undefined && { from }),
      ...(to !== undefined && { to }),
    })
    return listOf(fieldOf(reply, 'entries')).map((entry) => {
      const [cursor, at, value] = listOf(entry)
      return { cursor: textOf(cursor), at: numberOf(at), value: decodeText(textOf(value)) }
    })
  }

  return {
    get,
    set: async (key, value, options = {}) => void (await write(key, value, options)),
    swap,
    delete: async (key) => fieldOf(await write(key, undefined, {}), 'found') === true,
    list,
    append: async (log, entry) => {
      const requests = [log].flat().map((one) => entryRequest({ ...entry, log: one }, limits))
      await run(APPEND, undefined, { limits, entries: requests })
    },
    entries,
  }
}
