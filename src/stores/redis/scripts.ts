import { LATE_MS, MAX_AMOUNT } from '../reservation-rules.ts'
import { defineScript, type Script } from './client.ts'

/**
 * Common to all scripts. All keys begin with KEYS[1], which contains a hash tag, so that they are in one slot.
 *
 * `request.now` is absent in production, where the server's clock applies to all processes. Keys also expire in the
 * server. With the caller's clock, they are kept an hour longer and the scripts compare the times. Amounts are exact
 * up to 2^53 and returned as text, because cjson writes 14 digits.
 */
export const COMMON: string = `
local base, request = KEYS[1], cjson.decode(ARGV[1])
local call = redis.call
local now, slack = request.now, 3600000
if not now then
  local time = call('TIME')
  now, slack = time[1] * 1000 + math.floor(time[2] / 1000), 0
end
local function text(number) return string.format('%.0f', number) end
local function lifetime(ends) return text(math.max(1, ends - now + slack)) end
local function keepFor(key, ms)
  if call('PTTL', key) < ms + slack then call('PEXPIRE', key, text(ms + slack)) end
end
`

/**
 * Counters: `c:<name>` is "spent held end generation". A counter that expires and is created again has another
 * generation, so that an old hold is not released from it. Reservations: `t:<ticket>` contains the expiry and the
 * holds; `lapses` orders open reservations by expiry.
 */
const COUNTERS = `
local MAX, LATE = ${MAX_AMOUNT}, ${LATE_MS}
local function readCounter(name)
  local found = call('GET', base .. ':c:' .. name)
  if not found then return nil end
  local spent, held, ends, generation = string.match(found, '^(%d+) (%d+) (%d+) (.*)$')
  if tonumber(ends) <= now then return nil end
  return { spent = tonumber(spent), held = tonumber(held), ends = tonumber(ends), generation = generation }
end
local function writeCounter(name, counter)
  local value = text(counter.spent) .. ' ' .. text(counter.held) .. ' ' .. text(counter.ends) .. ' ' .. counter.generation
  call('SET', base .. ':c:' .. name, value, 'PX', lifetime(counter.ends))
end
local function readTicket(name)
  local found = call('GET', base .. ':t:' .. name)
  if not found then return nil end
  local ticket = cjson.decode(found)
  if ticket.lapses + LATE <= now then return nil end
  return ticket
end
local function writeTicket(name, ticket)
  call('SET', base .. ':t:' .. name, cjson.encode(ticket), 'PX', lifetime(ticket.lapses + LATE))
end
local function release(ticket)
  for _, hold in ipairs(ticket.holds) do
    local counter = readCounter(hold[1])
    if counter and counter.generation == hold[2] then
      counter.held = math.max(0, counter.held - tonumber(hold[3]))
      writeCounter(hold[1], counter)
    end
  end
end
local function lapse()
  for _, name in ipairs(call('ZRANGEBYSCORE', base .. ':lapses', '-inf', text(now), 'LIMIT', 0, 1000)) do
    local ticket = readTicket(name)
    if ticket then
      release(ticket)
      ticket.holds = {}
      writeTicket(name, ticket)
    end
    call('ZREM', base .. ':lapses', name)
  end
end
local function level(counter)
  return counter and math.min(MAX, counter.spent + counter.held) or 0
end
`

/**
 * Values and log entries are items of pools: `durable`, `owned`, `expiring`, `logs`. `meta` has the pool, share and
 * size of each item, `share:<pool>:<share>` the items of a share by age, `bytes:<pool>` the shares by size, `pools` the
 * totals, `ends` the items by their end, `index` the keys of values by name, `log:<log>` the entries of a log.
 */
const ITEMS = `
local function sizeOfShare(pool, share)
  local entries = call('ZCARD', base .. ':share:' .. pool .. ':' .. share)
  return entries, tonumber(call('ZSCORE', base .. ':bytes:' .. pool, share) or '0')
end
local function sizeOfPool(pool)
  local found = call('HMGET', base .. ':pools', pool .. ':entries', pool .. ':bytes')
  return tonumber(found[1] or '0'), tonumber(found[2] or '0')
end
local function count(pool, share, entries, bytes)
  call('ZINCRBY', base .. ':bytes:' .. pool, text(bytes), share)
  call('HINCRBY', base .. ':pools', pool .. ':entries', text(entries))
  call('HINCRBY', base .. ':pools', pool .. ':bytes', text(bytes))
end
local function drop(item)
  local found = call('HGET', base .. ':meta', item)
  if not found then return false end
  local meta = cjson.decode(found)
  call('HDEL', base .. ':meta', item)
  call('DEL', base .. ':i:' .. item)
  call('ZREM', base .. ':ends', item)
  call('ZREM', base .. ':share:' .. meta.pool .. ':' .. meta.share, item)
  count(meta.pool, meta.share, -1, -meta.bytes)
  if call('ZCARD', base .. ':share:' .. meta.pool .. ':' .. meta.share) == 0 then
    call('ZREM', base .. ':bytes:' .. meta.pool, meta.share)
  end
  if meta.log then call('ZREM', base .. ':log:' .. meta.log, item)
  else call('ZREM', base .. ':index', string.sub(item, 2)) end
  return true
end
local function sweep()
  repeat
    local due = call('ZRANGEBYSCORE', base .. ':ends', '-inf', text(now), 'LIMIT', 0, 100)
    for _, item in ipairs(due) do
      if not drop(item) then call('ZREM', base .. ':ends', item) end
    end
  until #due < 100
end
local function put(item, meta, content, ttl)
  if ttl then
    call('SET', base .. ':i:' .. item, content, 'PX', lifetime(now + ttl))
    call('ZADD', base .. ':ends', text(now + ttl), item)
  else
    call('SET', base .. ':i:' .. item, content)
  end
  call('HSET', base .. ':meta', item, cjson.encode(meta))
  call('ZADD', base .. ':share:' .. meta.pool .. ':' .. meta.share, text(call('INCR', base .. ':sequence')), item)
  count(meta.pool, meta.share, 1, meta.bytes)
end
local function isOver(entries, bytes, more, most)
  return entries > 0 and (entries + 1 > most.entries or bytes + more > most.bytes)
end
local function dropFrom(pool, share)
  local oldest = call('ZRANGE', base .. ':share:' .. pool .. ':' .. share, 0, 0)[1]
  if oldest then drop(oldest) else call('ZREM', base .. ':bytes:' .. pool, share) end
end
local function makeRoom(pool, share, bytes, quota, most)
  while quota do
    local entries, held = sizeOfShare(pool, share)
    if not isOver(entries, held, bytes, quota) then break end
    dropFrom(pool, share)
  end
  while true do
    local entries, held = sizeOfPool(pool)
    local largest = call('ZREVRANGE', base .. ':bytes:' .. pool, 0, 0)[1]
    if not largest or not isOver(entries, held, bytes, most) then break end
    dropFrom(pool, largest)
  end
end
local function append(entry)
  sweep()
  makeRoom('logs', entry.share, entry.bytes, entry.quota, request.limits.logs)
  local id = text(call('INCR', base .. ':sequence'))
  local item = 'l' .. string.rep('0', 16 - #id) .. id
  call('ZADD', base .. ':log:' .. entry.log, id, item)
  local content = cjson.encode({ at = text(entry.at), value = entry.value })
  put(item, { pool = 'logs', share = entry.share, bytes = entry.bytes, log = entry.log }, content, entry.ttl)
end
local function isAlive(item)
  local ends = call('ZSCORE', base .. ':ends', item)
  return not ends or tonumber(ends) > now
end
`

const TALLIES = `
local function addTally(tally)
  local key = base .. ':y:' .. tally.name
  if tally.ends and tally.ends <= now then return end
  local ends = call('HGET', key, 'ends')
  if ends and tonumber(ends) <= now then call('DEL', key) end
  for field, amount in pairs(tally.amounts) do
    local found = call('HGET', key, 'f' .. field)
    if found or call('HLEN', key) < 4097 then
      local sum = tonumber(found or '0') + amount
      call('HSET', key, 'f' .. field, text(math.max(-MAX, math.min(MAX, sum))))
    end
  end
  if tally.ends then
    call('HSET', key, 'ends', text(tally.ends))
    call('PEXPIRE', key, lifetime(tally.ends))
  end
end
`

export const RESERVE: Script = defineScript(`${COMMON}${COUNTERS}
lapse()
if readTicket(request.ticket) then return cjson.encode({ error = 'taken' }) end
local counters, before, levels = {}, {}, {}
for index, claim in ipairs(request.claims) do
  if claim.ends <= now then return cjson.encode({ error = 'ended', counter = claim.counter }) end
  counters[index] = readCounter(claim.counter)
  before[index] = level(counters[index])
  levels[index] = text(before[index])
end
local granted, refused = nil, nil
for index, claim in ipairs(request.claims) do
  local wanted = claim.amount
  if claim.elastic then wanted = math.min(claim.amount, request.least or claim.amount) end
  local left = claim.max - before[index]
  if wanted > left then refused = index break end
  if claim.elastic then granted = math.min(granted or MAX, claim.amount, left) end
end
if refused then return cjson.encode({ refused = refused - 1, levels = levels }) end
local holds = {}
for index, claim in ipairs(request.claims) do
  local amount = claim.elastic and granted or claim.amount
  local counter = counters[index] or { spent = 0, held = 0, ends = claim.ends, generation = request.ticket }
  counter.held = counter.held + amount
  counter.ends = math.max(counter.ends, claim.ends)
  writeCounter(claim.counter, counter)
  holds[index] = { claim.counter, counter.generation, text(amount) }
  levels[index] = text(before[index] + amount)
end
local lapses = now + request.lapsesAfter
writeTicket(request.ticket, { lapses = lapses, holds = holds })
call('ZADD', base .. ':lapses', text(lapses), request.ticket)
keepFor(base .. ':lapses', request.lapsesAfter + LATE)
return cjson.encode({ granted = text(granted or 0), levels = levels })
`)

/** With `force`, charges without a reservation in this slot, because another slot has settled it. */
export const SETTLE: Script = defineScript(`${COMMON}${COUNTERS}${ITEMS}${TALLIES}
lapse()
local ticket = readTicket(request.ticket)
if ticket and ticket.settled then return '{"before":true}' end
if not ticket and not request.force then return '{}' end
if ticket then
  release(ticket)
  call('DEL', base .. ':t:' .. request.ticket)
  call('ZREM', base .. ':lapses', request.ticket)
end
if request.mark then writeTicket(request.ticket, { lapses = now, holds = {}, settled = true }) end
for _, charge in ipairs(request.charges) do
  local counter = readCounter(charge.counter)
  if not counter and charge.ends > now then
    counter = { spent = 0, held = 0, ends = charge.ends, generation = request.ticket .. '!' }
  end
  if counter then
    counter.spent = math.min(MAX, counter.spent + charge.amount)
    counter.ends = math.max(counter.ends, charge.ends)
    writeCounter(charge.counter, counter)
  end
end
for _, tally in ipairs(request.tallies) do addTally(tally) end
for _, entry in ipairs(request.entries) do append(entry) end
return '{"settled":true}'
`)

/** Releases a part of a reservation, when another slot granted less to an elastic claim. */
export const SHRINK: Script = defineScript(`${COMMON}${COUNTERS}
local ticket = readTicket(request.ticket)
if not ticket then return '{}' end
for _, hold in ipairs(ticket.holds) do
  local counter = readCounter(hold[1])
  local less = tonumber(hold[3]) - request.amount
  if request.counters[hold[1]] and less > 0 then
    hold[3] = text(request.amount)
    if counter and counter.generation == hold[2] then
      counter.held = math.max(0, counter.held - less)
      writeCounter(hold[1], counter)
    end
  end
end
writeTicket(request.ticket, ticket)
return '{}'
`)

export const LEVELS: Script = defineScript(`${COMMON}${COUNTERS}
lapse()
local levels = {}
for index, name in ipairs(request.counters) do
  local counter = readCounter(name)
  levels[index] = { text(counter and counter.spent or 0), text(counter and counter.held or 0) }
end
return cjson.encode({ levels = levels })
`)

export const READ_TALLIES: Script = defineScript(`${COMMON}
local tallies = {}
for index, name in ipairs(request.names) do
  local found = call('HGETALL', base .. ':y:' .. name)
  local ends = call('HGET', base .. ':y:' .. name, 'ends')
  tallies[index] = (ends and tonumber(ends) <= now) and {} or found
end
return cjson.encode({ tallies = tallies })
`)

export const GET: Script = defineScript(`${COMMON}${ITEMS}
local item = 'v' .. request.key
local value = call('GET', base .. ':i:' .. item)
if not value or not isAlive(item) then return '{}' end
return cjson.encode({ value = value })
`)

/** `set`, `swap` and `delete`. */
export const WRITE: Script = defineScript(`${COMMON}${ITEMS}
sweep()
local item = 'v' .. request.key
if request.swaps then
  local present = call('GET', base .. ':i:' .. item) or nil
  if present ~= request.expected then return '{"done":false}' end
end
local pool, share, bytes, quota = request.pool, request.share, request.bytes, request.quota
if not request.value then
  return drop(item) and '{"done":true,"found":true}' or '{"done":true}'
end
local most = request.limit
if pool == 'owned' and not request.mustFit then
  local found = call('HGET', base .. ':meta', item)
  local old = found and cjson.decode(found) or {}
  local replaces = old.pool == pool and old.share == share
  local moreEntries, moreBytes = replaces and 0 or 1, bytes - (replaces and old.bytes or 0)
  if moreEntries > 0 or moreBytes > 0 then
    local entries, held = sizeOfShare(pool, share)
    local allEntries, allBytes = sizeOfPool(pool)
    local maxEntries = math.min(quota.entries, most.entries - allEntries - moreEntries)
    local maxBytes = math.min(quota.bytes, most.bytes - allBytes - moreBytes)
    if entries + moreEntries > maxEntries or held + moreBytes > maxBytes then return '{"full":true}' end
  end
end
drop(item)
if request.ttl and request.ttl <= 0 then return '{"done":true}' end
if pool == 'expiring' then makeRoom(pool, share, bytes, quota, most) end
put(item, { pool = pool, share = share, bytes = bytes }, request.value, request.ttl)
call('ZADD', base .. ':index', 0, request.key)
return '{"done":true}'
`)

/** Compares bytes, because the order of Lua strings depends on the server's locale. */
export const LIST: Script = defineScript(`${COMMON}${ITEMS}
local function isBefore(a, b)
  for position = 1, math.min(#a, #b) do
    local left, right = string.byte(a, position), string.byte(b, position)
    if left ~= right then return left < right end
  end
  return #a < #b
end
sweep()
local prefix, after = request.prefix, request.after
local first = '[' .. prefix
if after and not isBefore(after, prefix) then first = '(' .. after end
local keys = {}
for _, key in ipairs(call('ZRANGEBYLEX', base .. ':index', first, '+', 'LIMIT', 0, request.limit)) do
  if string.sub(key, 1, #prefix) ~= prefix then break end
  keys[#keys + 1] = key
end
return cjson.encode({ keys = keys })
`)

export const APPEND: Script = defineScript(`${COMMON}${ITEMS}
for _, entry in ipairs(request.entries) do append(entry) end
return '{}'
`)

export const ENTRIES: Script = defineScript(`${COMMON}${ITEMS}
local found, after = {}, '(' .. request.after
while #found < request.limit do
  local page = call('ZRANGEBYSCORE', base .. ':log:' .. request.log, after, '+inf', 'LIMIT', 0, 200)
  for _, item in ipairs(page) do
    local content = call('GET', base .. ':i:' .. item)
    if content and #found < request.limit and isAlive(item) then
      local entry = cjson.decode(content)
      local at = tonumber(entry.at)
      if at >= (request.from or at) and at < (request.to or at + 1) then
        found[#found + 1] = { string.sub(item, 2), entry.at, entry.value }
      end
    end
  end
  if #page < 200 then break end
  after = '(' .. text(tonumber(string.sub(page[#page], 2)))
end
return cjson.encode({ entries = found })
`)

/** Reads the settings that the guarantees depend on. A server that does not report them causes no warning. */
export const READ_SETTINGS: Script = defineScript(`
local function setting(section, pattern)
  local info = redis.pcall('INFO', section)
  return type(info) == 'string' and string.match(info, pattern) or nil
end
return cjson.encode({
  appendOnly = setting('persistence', 'aof_enabled:(%d)'),
  policy = setting('memory', 'maxmemory_policy:([%w-]+)'),
})
`)
