export interface Script {
  readonly text: string
  readonly sha: Promise<string>
}

/** Without an owner, the script runs in the shared slot. */
export type RunScript = (script: Script, request: object, owner?: string) => Promise<unknown>

export function defineScript(text: string): Script {
  return { text, sha: sha1(text) }
}

async function sha1(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-1', new TextEncoder().encode(text))
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

/**
 * With `request.now`, the server deletes expired keys an hour late, because its clock may run faster than the caller's.
 * Amounts are returned as text, because cjson writes only 14 digits.
 */
export const PREAMBLE: string = `
local base, request = KEYS[1], cjson.decode(ARGV[1])
local call = redis.call
local now, slack = request.now, 3600000
if not now then
  local time = call('TIME')
  now, slack = time[1] * 1000 + math.floor(time[2] / 1000), 0
end
local function text(number) return string.format('%.0f', number) end
local function lifetime(expiresAt) return text(math.max(1, expiresAt - now + slack)) end
local function keepFor(key, ms)
  if call('PTTL', key) < ms + slack then call('PEXPIRE', key, text(ms + slack)) end
end
`

/** A script blocks the server for all clients, so one sweep removes few items. */
const MAX_SWEPT_ITEMS = 20
const MAX_SCANNED_ENTRIES = 2_000
const PAGE_SIZE = 200

/**
 * An item is `v<key>` or `l<sequence number>`. `share:*` orders the items of a share by age, `bytes:*` the shares of a
 * pool by size, `ends` the items by expiry, `index` the value keys, and `log:*` the entries of a log.
 */
export const ITEM_FUNCTIONS: string = `
local function sizeOfShare(pool, share)
  local entries = call('ZCARD', base .. ':share:' .. pool .. ':' .. share)
  return entries, tonumber(call('ZSCORE', base .. ':bytes:' .. pool, share) or '0')
end
local function sizeOfPool(pool)
  local totals = call('HMGET', base .. ':pools', pool .. ':entries', pool .. ':bytes')
  return tonumber(totals[1] or '0'), tonumber(totals[2] or '0')
end
local function addToTotals(pool, share, entries, bytes)
  call('ZINCRBY', base .. ':bytes:' .. pool, text(bytes), share)
  call('HINCRBY', base .. ':pools', pool .. ':entries', text(entries))
  call('HINCRBY', base .. ':pools', pool .. ':bytes', text(bytes))
end
local function drop(item)
  local encodedMeta = call('HGET', base .. ':meta', item)
  if not encodedMeta then return false end
  local meta = cjson.decode(encodedMeta)
  call('HDEL', base .. ':meta', item)
  call('DEL', base .. ':i:' .. item)
  call('ZREM', base .. ':ends', item)
  call('ZREM', base .. ':share:' .. meta.pool .. ':' .. meta.share, item)
  addToTotals(meta.pool, meta.share, -1, -meta.bytes)
  if call('ZCARD', base .. ':share:' .. meta.pool .. ':' .. meta.share) == 0 then
    call('ZREM', base .. ':bytes:' .. meta.pool, meta.share)
  end
  if meta.log then call('ZREM', base .. ':log:' .. meta.log, item)
  else call('ZREM', base .. ':index', string.sub(item, 2)) end
  return true
end
local function sweep()
  local due = call('ZRANGEBYSCORE', base .. ':ends', '-inf', text(now), 'LIMIT', 0, ${MAX_SWEPT_ITEMS})
  for _, item in ipairs(due) do
    if not drop(item) then call('ZREM', base .. ':ends', item) end
  end
end
local function isAlive(item)
  local expiresAt = call('ZSCORE', base .. ':ends', item)
  return not expiresAt or tonumber(expiresAt) > now
end
local function write(item, meta, content, ttl)
  if ttl then
    call('SET', base .. ':i:' .. item, content, 'PX', lifetime(now + ttl))
    call('ZADD', base .. ':ends', text(now + ttl), item)
  else
    call('SET', base .. ':i:' .. item, content)
  end
  call('HSET', base .. ':meta', item, cjson.encode(meta))
  call('ZADD', base .. ':share:' .. meta.pool .. ':' .. meta.share, text(call('INCR', base .. ':sequence')), item)
  addToTotals(meta.pool, meta.share, 1, meta.bytes)
end
local function wouldExceed(entries, bytes, added, limit)
  return entries > 0 and (entries + 1 > limit.entries or bytes + added > limit.bytes)
end
local function largestShare(pool, newShare)
  local shares = base .. ':bytes:' .. pool
  local largest, bytes = unpack(call('ZREVRANGE', shares, 0, 0, 'WITHSCORES'))
  return call('ZSCORE', shares, newShare) == bytes and newShare or largest
end
local function dropOldest(pool, share)
  local oldest = call('ZRANGE', base .. ':share:' .. pool .. ':' .. share, 0, 0)[1]
  if oldest then drop(oldest) else call('ZREM', base .. ':bytes:' .. pool, share) end
end
local function dropUntilFits(pool, share, bytes, quota, limit)
  while quota do
    local entries, usedBytes = sizeOfShare(pool, share)
    if not wouldExceed(entries, usedBytes, bytes, quota) then break end
    dropOldest(pool, share)
  end
  while true do
    local entries, usedBytes = sizeOfPool(pool)
    local largest = largestShare(pool, share)
    if not largest or not wouldExceed(entries, usedBytes, bytes, limit) then break end
    dropOldest(pool, largest)
  end
end
local function append(entry)
  sweep()
  dropUntilFits('logs', entry.share, entry.bytes, entry.quota, request.logLimit)
  local id = text(call('INCR', base .. ':sequence'))
  local item = 'l' .. string.rep('0', 16 - #id) .. id
  call('ZADD', base .. ':log:' .. entry.log, id, item)
  local content = cjson.encode({ at = text(entry.at), value = entry.value })
  write(item, { pool = 'logs', share = entry.share, bytes = entry.bytes, log = entry.log }, content, entry.ttl)
end
`

export const GET: Script = defineScript(`${PREAMBLE}${ITEM_FUNCTIONS}
local item = 'v' .. request.key
local value = call('GET', base .. ':i:' .. item)
if not value or not isAlive(item) then return '{}' end
return cjson.encode({ value = value })
`)

export const WRITE: Script = defineScript(`${PREAMBLE}${ITEM_FUNCTIONS}
sweep()
local item = 'v' .. request.key
if request.isSwap then
  local current = isAlive(item) and call('GET', base .. ':i:' .. item) or nil
  if current ~= request.expected then return '{"done":false}' end
end
local pool, share, bytes, quota = request.pool, request.share, request.bytes, request.quota
if not request.value then
  local isFound = isAlive(item)
  return drop(item) and isFound and '{"done":true,"found":true}' or '{"done":true}'
end
local limit = request.limit
if pool == 'owned' and not request.mustFit then
  local encodedMeta = call('HGET', base .. ':meta', item)
  local old = encodedMeta and cjson.decode(encodedMeta) or {}
  local isReplaced = old.pool == pool and old.share == share
  local moreEntries, moreBytes = isReplaced and 0 or 1, bytes - (isReplaced and old.bytes or 0)
  if moreEntries > 0 or moreBytes > 0 then
    local entries, usedBytes = sizeOfShare(pool, share)
    local allEntries, allBytes = sizeOfPool(pool)
    local maxEntries = math.min(quota.entries, limit.entries - allEntries - moreEntries)
    local maxBytes = math.min(quota.bytes, limit.bytes - allBytes - moreBytes)
    if entries + moreEntries > maxEntries or usedBytes + moreBytes > maxBytes then return '{"full":true}' end
  end
end
drop(item)
if request.ttl and request.ttl <= 0 then return '{"done":true}' end
if pool == 'expiring' then dropUntilFits(pool, share, bytes, quota, limit) end
write(item, { pool = pool, share = share, bytes = bytes }, request.value, request.ttl)
call('ZADD', base .. ':index', 0, request.key)
return '{"done":true}'
`)

/** Compares bytes, because Lua compares strings according to the server's locale. */
export const LIST: Script = defineScript(`${PREAMBLE}${ITEM_FUNCTIONS}
local function isBefore(a, b)
  for position = 1, math.min(#a, #b) do
    local left, right = string.byte(a, position), string.byte(b, position)
    if left ~= right then return left < right end
  end
  return #a < #b
end
local prefix, after = request.prefix, request.after
local first = '[' .. prefix
if after and not isBefore(after, prefix) then first = '(' .. after end
local keys, removed, page = {}, 0, nil
repeat
  page = call('ZRANGEBYLEX', base .. ':index', first, '+', 'LIMIT', 0, ${PAGE_SIZE})
  for _, key in ipairs(page) do
    if string.sub(key, 1, #prefix) ~= prefix or #keys >= request.limit then return cjson.encode({ keys = keys }) end
    if isAlive('v' .. key) then
      keys[#keys + 1] = key
    else
      drop('v' .. key)
      removed = removed + 1
    end
    first = '(' .. key
  end
until #page < ${PAGE_SIZE} or removed >= ${PAGE_SIZE}
return cjson.encode({ keys = keys, next = #page == ${PAGE_SIZE} and string.sub(first, 2) or nil })
`)

export const APPEND: Script = defineScript(`${PREAMBLE}${ITEM_FUNCTIONS}
for _, entry in ipairs(request.entries) do append(entry) end
return '{}'
`)

export const ENTRIES: Script = defineScript(`${PREAMBLE}${ITEM_FUNCTIONS}
local entries, after = {}, '(' .. request.after
for _ = 1, ${MAX_SCANNED_ENTRIES / PAGE_SIZE} do
  local page = call('ZRANGEBYSCORE', base .. ':log:' .. request.log, after, '+inf', 'LIMIT', 0, ${PAGE_SIZE})
  local keys = {}
  for index, item in ipairs(page) do keys[index] = base .. ':i:' .. item end
  local contents = #page > 0 and call('MGET', unpack(keys)) or {}
  for index, item in ipairs(page) do
    if #entries >= request.limit then return cjson.encode({ entries = entries }) end
    local content = contents[index]
    local at = content and tonumber(string.match(content, '"at":"(-?%d+)"'))
    if at and at >= (request.from or at) and at < (request.to or at + 1) and isAlive(item) then
      entries[#entries + 1] = { string.sub(item, 2), text(at), cjson.decode(content).value }
    end
  end
  if #page < ${PAGE_SIZE} then return cjson.encode({ entries = entries }) end
  after = '(' .. text(tonumber(string.sub(page[#page], 2)))
end
return cjson.encode({ entries = entries, next = string.sub(after, 2) })
`)

export const READ_SETTINGS: Script = defineScript(`
local function readSetting(section, pattern)
  local info = redis.pcall('INFO', section)
  return type(info) == 'string' and string.match(info, pattern) or nil
end
return cjson.encode({
  appendOnly = readSetting('persistence', 'aof_enabled:(%d)'),
  policy = readSetting('memory', 'maxmemory_policy:([%w-]+)'),
})
`)
