import { LRUCache } from 'lru-cache'
import { lazy } from '../../core/async.ts'
import type { Neighbor, VectorIndex } from '../../core/cache.ts'
import { checkOptions, optionsOf, integerFrom } from '../../core/check-options.ts'
import { fieldOf, toList, toNumber, toText } from '../durable-store.ts'
import { createRunScript, REDIS_CHECKS, type RedisStoreOptions } from '../redis.ts'
import { createStoreClock } from '../store-rules.ts'
import { checkVector } from '../response-store.ts'
import { PREAMBLE, defineScript, type Script } from './value-scripts.ts'

/** Options for `redisVectorIndex()`. */
export interface RedisVectorIndexOptions extends Pick<RedisStoreOptions, 'client' | 'prefix' | 'now'> {
  /** Length of the vectors. Embedders whose vectors have the same length need separate prefixes. @default 1024 */
  readonly dimensions?: number
  /**
   * Maximum number of vectors per scope. A full scope drops the vector that expires first. @default 10,000, or 256
   * without vector sets
   */
  readonly maxPerScope?: number
  /** Maximum number of vectors added by requests of one key. @default 10,000 */
  readonly maxPerKey?: number
}

const MAX_DIMENSIONS = 4096
const DEFAULT_MAX_VECTORS = 10_000
const CHECK_INDEX = optionsOf(
  {
    ...REDIS_CHECKS,
    dimensions: integerFrom(1, MAX_DIMENSIONS),
    maxPerScope: integerFrom(0),
    maxPerKey: integerFrom(0),
  },
  ['client'],
)
const DEFAULT_MAX_PER_COPIED_SCOPE = 256

/**
 * Creates a vector index in Redis. Each scope has a separate vector set (Redis 8), which a lookup searches in one call.
 * On a server without vector sets, a scope has by default at most 256 vectors, which each process copies and compares.
 *
 * @example
 * const index = redisVectorIndex({ client: new Redis(), dimensions: 1024 })
 */
export function redisVectorIndex(options: RedisVectorIndexOptions): VectorIndex {
  checkOptions('redisVectorIndex', options, CHECK_INDEX)
  const { client, prefix = 'sluice', dimensions = 1024, maxPerKey = DEFAULT_MAX_VECTORS } = options
  const { clock, useClock } = createStoreClock(options.now, () => undefined)
  const run = createRunScript(client, prefix, clock)
  const hasVectorSets = lazy(async () => fieldOf(await run(HAS_VECTOR_SETS, {}), 'sets') === true)
  const send = async (script: Script, request: object): Promise<unknown> =>
    run(script, { ...request, dimensions, usesCopies: !(await hasVectorSets()) })
  const findNearestInCopies = createFindNearestInCopies(
    (scope, after) => send(READ_VECTORS, { scope, after, page: PAGE_SIZE }),
    dimensions,
  )

  const findNearestInSet: FindNearest = async (scope, vector, limit) => {
    const reply = await send(NEAREST_VECTORS, { scope, vector: Array.from(vector), limit })
    return toList(fieldOf(reply, 'neighbors')).map((neighbor) => {
      const [id, score] = toList(neighbor)
      // Redis maps the cosine to a score from 0 to 1.
      return { id: toText(id), similarity: 2 * toNumber(score) - 1 }
    })
  }

  return {
    add: async ({ id, scope, owner = '', vector, expiresAt }) => {
      checkVector(vector, dimensions)
      const usesVectorSets = await hasVectorSets()
      const maxPerScope = options.maxPerScope ?? (usesVectorSets ? DEFAULT_MAX_VECTORS : DEFAULT_MAX_PER_COPIED_SCOPE)
      const encoded = usesVectorSets ? Array.from(vector) : encodeVector(vector)
      if (maxPerScope < 1 || maxPerKey < 1) return
      await send(ADD_VECTOR, { id, scope, owner, vector: encoded, ends: expiresAt, maxPerScope, maxPerKey })
    },
    nearest: async (scope, vector, { minSimilarity, limit }) => {
      checkVector(vector, dimensions)
      if (limit < 1) return []
      const findNearest = (await hasVectorSets()) ? findNearestInSet : findNearestInCopies
      return (await findNearest(scope, vector, limit)).filter(({ similarity }) => similarity >= minSimilarity)
    },
    remove: async (id) => void (await send(REMOVE_VECTOR, { id })),
    clear: async () => {
      let cursor = '0'
      do cursor = toText(fieldOf(await send(CLEAR_VECTORS, { cursor }), 'cursor'))
      while (cursor !== '0')
    },
    useClock,
    warnings: async () =>
      (await hasVectorSets())
        ? []
        : [
            `The Redis server has no vector sets, so redisVectorIndex compares at most ${options.maxPerScope ?? DEFAULT_MAX_PER_COPIED_SCOPE} questions per scope. Use Redis 8 or newer.`,
          ],
  }
}

/** Returns the sequence numbers of all vectors in a scope, and one page of the vectors after a sequence number. */
type ReadVectors = (scope: string, after: number) => Promise<unknown>

interface CopiedVector {
  readonly id: string
  readonly vector: Float32Array
}

type FindNearest = (scope: string, vector: Float32Array, limit: number) => Promise<readonly Neighbor[]>

/** With 256 vectors of 4 KiB per scope, the copies take 64 MiB. */
const MAX_COPIED_SCOPES = 64
const PAGE_SIZE = 64

/** If a copy lacks an older vector, for example because the server's data was replaced, all vectors are read again. */
function createFindNearestInCopies(read: ReadVectors, dimensions: number): FindNearest {
  const scopes = new LRUCache<string, ReadonlyMap<number, CopiedVector>>({ max: MAX_COPIED_SCOPES })

  async function copyVectors(scope: string): Promise<ReadonlyMap<number, CopiedVector>> {
    const copies = new Map(scopes.get(scope))
    let after = [...copies.keys()].at(-1) ?? 0
    for (let hasRestarted = false; ;) {
      const reply = await read(scope, after)
      const sequenceNumbers = new Set(toList(fieldOf(reply, 'numbers')).map(toNumber))
      for (const number of copies.keys()) if (!sequenceNumbers.has(number)) copies.delete(number)
      const page = toList(fieldOf(reply, 'vectors')).map((entry) => toList(entry).map(toText))
      for (const [number, id = '', text = ''] of page) {
        after = toNumber(number)
        copies.set(after, { id, vector: decodeVector(text, dimensions) })
      }
      if (page.length === PAGE_SIZE) continue
      if (copies.size === sequenceNumbers.size || hasRestarted) break
      copies.clear()
      after = 0
      hasRestarted = true
    }
    scopes.set(scope, copies)
    return copies
  }

  return async (scope, vector, limit) =>
    Array.from((await copyVectors(scope)).values(), (copy) => ({
      id: copy.id,
      similarity: dotProduct(copy.vector, vector),
    }))
      .toSorted((a, b) => b.similarity - a.similarity)
      .slice(0, limit)
}

function encodeVector(vector: Float32Array): string {
  const bytes = new Uint8Array(vector.length * 4)
  const view = new DataView(bytes.buffer)
  vector.forEach((value, index) => view.setFloat32(index * 4, value, true))
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))
}

/** Returns the zero vector for damaged data. Its similarity to each vector is 0. */
function decodeVector(text: string, dimensions: number): Float32Array {
  const vector = new Float32Array(dimensions)
  const bytes = /^[A-Za-z0-9+/]+={0,2}$/.test(text) && text.length % 4 === 0 ? atob(text) : ''
  if (bytes.length !== dimensions * 4) return vector
  const view = new DataView(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0)).buffer)
  return vector.map((_, index) => view.getFloat32(index * 4, true))
}

function dotProduct(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, index) => sum + value * (b[index] ?? 0), 0)
}

/**
 * Without vector sets (`request.usesCopies`), `d:<scope>` contains vectors by id and `o:<scope>` orders ids by sequence
 * number. `e:<scope>` and `k:<owner>` order ids by expiry. `i:<id>` contains the scope and owner of an id.
 */
const VECTOR_FUNCTIONS = `
local root = base .. ':x' .. request.dimensions
local function erase(scope, id)
  local stored = call('GET', root .. ':i:' .. id)
  local owner = stored and cjson.decode(stored).owner
  if owner then call('ZREM', root .. ':k:' .. owner, id) end
  call('DEL', root .. ':i:' .. id)
  call('ZREM', root .. ':e:' .. scope, id)
  if request.usesCopies then
    call('HDEL', root .. ':d:' .. scope, id)
    call('ZREM', root .. ':o:' .. scope, id)
  else
    call('VREM', root .. ':v:' .. scope, id)
  end
end
-- Removing a vector from a vector set takes about 0.1 ms, so one sweep of a vector set removes at most 20.
local function sweep(scope)
  local limit = request.usesCopies and 1000 or 20
  for _, id in ipairs(call('ZRANGEBYSCORE', root .. ':e:' .. scope, '-inf', text(now), 'LIMIT', 0, limit)) do
    erase(scope, id)
  end
end
local function scopeOf(id)
  local stored = call('GET', root .. ':i:' .. id)
  return stored and cjson.decode(stored).scope
end
local function isAlive(scope, id)
  local expiresAt = call('ZSCORE', root .. ':e:' .. scope, id)
  return expiresAt and tonumber(expiresAt) > now
end
`

const ADD_VECTOR: Script = defineScript(`${PREAMBLE}${VECTOR_FUNCTIONS}
local id, scope, owner = request.id, request.scope, request.owner
local old = scopeOf(id)
if old then erase(old, id) end
sweep(scope)
local scopeKey, ownerKey = root .. ':e:' .. scope, root .. ':k:' .. owner
call('ZREMRANGEBYSCORE', ownerKey, '-inf', text(now))
for _ = 1, 20 do
  if call('ZCARD', scopeKey) < request.maxPerScope then break end
  erase(scope, call('ZRANGE', scopeKey, 0, 0)[1])
end
for _ = 1, 20 do
  if call('ZCARD', ownerKey) < request.maxPerKey then break end
  local first = call('ZRANGE', ownerKey, 0, 0)[1]
  erase(scopeOf(first) or '', first)
  call('ZREM', ownerKey, first)
end
local ttl = request.ends - now
if ttl <= 0 then return '{}' end
call('SET', root .. ':i:' .. id, cjson.encode({ scope = scope, owner = owner }), 'PX', lifetime(request.ends))
call('ZADD', scopeKey, text(request.ends), id)
call('ZADD', ownerKey, text(request.ends), id)
keepFor(scopeKey, ttl)
keepFor(ownerKey, ttl)
if request.usesCopies then
  local order, time = root .. ':o:' .. scope, call('TIME')
  local last = call('ZREVRANGE', order, 0, 0, 'WITHSCORES')[2] or '0'
  -- Sequence numbers follow the clock. Otherwise they would be reused after FLUSHDB.
  call('ZADD', order, text(math.max(last + 1, time[1] * 1000000 + time[2])), id)
  call('HSET', root .. ':d:' .. scope, id, request.vector)
  keepFor(order, ttl)
  keepFor(root .. ':d:' .. scope, ttl)
else
  local set = root .. ':v:' .. scope
  local arguments = { 'VADD', set, 'VALUES', request.dimensions, unpack(request.vector) }
  arguments[#arguments + 1] = id
  arguments[#arguments + 1] = 'NOQUANT'
  call(unpack(arguments))
  keepFor(set, ttl)
end
return '{}'
`)

/** Searches a set of at most 2,000 vectors exhaustively, and a larger set approximately. */
const NEAREST_VECTORS: Script = defineScript(`${PREAMBLE}${VECTOR_FUNCTIONS}
local scope, set = request.scope, root .. ':v:' .. request.scope
sweep(scope)
local arguments = { 'VSIM', set, 'VALUES', request.dimensions, unpack(request.vector) }
local options = { 'WITHSCORES', 'COUNT', request.limit, 'EF', 500 }
if call('VCARD', set) <= 2000 then options = { 'WITHSCORES', 'COUNT', request.limit, 'TRUTH' } end
for _, option in ipairs(options) do arguments[#arguments + 1] = option end
local matches, neighbors = call(unpack(arguments)), {}
for at = 1, #matches, 2 do
  if isAlive(scope, matches[at]) then neighbors[#neighbors + 1] = { matches[at], tostring(matches[at + 1]) } end
end
return cjson.encode({ neighbors = neighbors })
`)

const READ_VECTORS: Script = defineScript(`${PREAMBLE}${VECTOR_FUNCTIONS}
local scope, numbers, vectors = request.scope, {}, {}
sweep(scope)
local order = call('ZRANGE', root .. ':o:' .. scope, 0, -1, 'WITHSCORES')
for at = 1, #order, 2 do
  local id, number = order[at], tonumber(order[at + 1])
  numbers[#numbers + 1] = text(number)
  if number > request.after and #vectors < request.page then
    vectors[#vectors + 1] = { text(number), id, call('HGET', root .. ':d:' .. scope, id) or '' }
  end
end
return cjson.encode({ numbers = numbers, vectors = vectors })
`)

const REMOVE_VECTOR: Script = defineScript(`${PREAMBLE}${VECTOR_FUNCTIONS}
local scope = scopeOf(request.id)
if scope then erase(scope, request.id) end
return '{}'
`)

const CLEAR_VECTORS: Script = defineScript(`${PREAMBLE}${VECTOR_FUNCTIONS}
local pattern = string.gsub(root, '[%[%]%*%?%\\\\^-]', '\\\\%0') .. ':*'
local page = call('SCAN', request.cursor, 'MATCH', pattern, 'COUNT', 1000)
for _, key in ipairs(page[2]) do call('UNLINK', key) end
return cjson.encode({ cursor = page[1] })
`)

const HAS_VECTOR_SETS: Script = defineScript(`${PREAMBLE}
local reply = redis.pcall('VCARD', base .. ':x')
return cjson.encode({ sets = not (type(reply) == 'table' and reply.err ~= nil) })
`)
