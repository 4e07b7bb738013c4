import { defineScript, type Script } from './client.ts'
import { COMMON } from './client.ts'

/**
 * Vectors of one length. Keys of the data:
 *
 * - `v:<scope>`: the vector set
 * - `d:<scope>` and `o:<scope>`: vectors by id, and ids by an ascending number, on a server without vector sets
 *   (`request.scans`)
 * - `e:<scope>` and `k:<owner>`: ids by expiry
 * - `i:<id>`: scope and owner of an id
 */
const VECTORS = `
local root = base .. ':x' .. request.dimensions
local function erase(scope, id)
  local found = call('GET', root .. ':i:' .. id)
  local owner = found and cjson.decode(found).owner
  if owner then call('ZREM', root .. ':k:' .. owner, id) end
  call('DEL', root .. ':i:' .. id)
  call('ZREM', root .. ':e:' .. scope, id)
  if request.scans then
    call('HDEL', root .. ':d:' .. scope, id)
    call('ZREM', root .. ':o:' .. scope, id)
  else
    call('VREM', root .. ':v:' .. scope, id)
  end
end
-- Removing a vector from a set takes about 0.1 ms, so one call removes at most 20.
local function sweep(scope)
  local limit = request.scans and 1000 or 20
  for _, id in ipairs(call('ZRANGEBYSCORE', root .. ':e:' .. scope, '-inf', text(now), 'LIMIT', 0, limit)) do
    erase(scope, id)
  end
end
local function scopeOf(id)
  local found = call('GET', root .. ':i:' .. id)
  return found and cjson.decode(found).scope
end
local function isAlive(scope, id)
  local ends = call('ZSCORE', root .. ':e:' .. scope, id)
  return ends and tonumber(ends) > now
end
`

/** Adds or replaces a vector. A full scope or owner drops the vector that expires first. */
export const ADD_VECTOR: Script = defineScript(`${COMMON}${VECTORS}
local id, scope, owner = request.id, request.scope, request.owner
local old = scopeOf(id)
if old then erase(old, id) end
sweep(scope)
local inScope, ofOwner = root .. ':e:' .. scope, root .. ':k:' .. owner
call('ZREMRANGEBYSCORE', ofOwner, '-inf', text(now))
for _ = 1, 20 do
  if call('ZCARD', inScope) < request.maxPerScope then break end
  erase(scope, call('ZRANGE', inScope, 0, 0)[1])
end
for _ = 1, 20 do
  if call('ZCARD', ofOwner) < request.maxPerKey then break end
  local first = call('ZRANGE', ofOwner, 0, 0)[1]
  erase(scopeOf(first) or '', first)
  call('ZREM', ofOwner, first)
end
local ttl = request.ends - now
if ttl <= 0 then return '{}' end
call('SET', root .. ':i:' .. id, cjson.encode({ scope = scope, owner = owner }), 'PX', lifetime(request.ends))
call('ZADD', inScope, text(request.ends), id)
call('ZADD', ofOwner, text(request.ends), id)
keepFor(inScope, ttl)
keepFor(ofOwner, ttl)
if request.scans then
  local order, time = root .. ':o:' .. scope, call('TIME')
  local last = call('ZREVRANGE', order, 0, 0, 'WITHSCORES')[2] or '0'
  -- Numbers follow the clock. Otherwise they would be reused after FLUSHDB.
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

/** Compares every vector in sets of at most 2,000 vectors, which gives an exact result. */
export const NEAREST_VECTORS: Script = defineScript(`${COMMON}${VECTORS}
local scope, set = request.scope, root .. ':v:' .. request.scope
sweep(scope)
local arguments = { 'VSIM', set, 'VALUES', request.dimensions, unpack(request.vector) }
local options = { 'WITHSCORES', 'COUNT', request.limit, 'EF', 500 }
if call('VCARD', set) <= 2000 then options = { 'WITHSCORES', 'COUNT', request.limit, 'TRUTH' } end
for _, option in ipairs(options) do arguments[#arguments + 1] = option end
local found, neighbors = call(unpack(arguments)), {}
for at = 1, #found, 2 do
  if isAlive(scope, found[at]) then neighbors[#neighbors + 1] = { found[at], tostring(found[at + 1]) } end
end
return cjson.encode({ neighbors = neighbors })
`)

/**
 * Returns the numbers of all vectors of a scope, and one page of the vectors after a number. For servers without vector
 * sets.
 */
export const READ_VECTORS: Script = defineScript(`${COMMON}${VECTORS}
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

export const REMOVE_VECTOR: Script = defineScript(`${COMMON}${VECTORS}
local scope = scopeOf(request.id)
if scope then erase(scope, request.id) end
return '{}'
`)

/** Deletes the keys on one page of the key space. Returns the cursor of the next page, or '0' after the last page. */
export const CLEAR_VECTORS: Script = defineScript(`${COMMON}${VECTORS}
local pattern = string.gsub(root, '[%[%]%*%?%\\\\^-]', '\\\\%0') .. ':*'
local page = call('SCAN', request.cursor, 'MATCH', pattern, 'COUNT', 1000)
for _, key in ipairs(page[2]) do call('UNLINK', key) end
return cjson.encode({ cursor = page[1] })
`)

/** Returns true if the server has vector sets (Redis 8 or newer). */
export const HAS_VECTOR_SETS: Script = defineScript(`${COMMON}
local reply = redis.pcall('VCARD', base .. ':x')
return cjson.encode({ sets = not (type(reply) == 'table' and reply.err ~= nil) })
`)
