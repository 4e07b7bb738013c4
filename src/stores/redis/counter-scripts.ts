import type { RemoteOperation } from '../durable-store.ts'
import { OTHER } from '../../core/store.ts'
import { LATE_SETTLEMENT_MS, MAX_AMOUNT, MAX_FIELDS, MAX_OTHER_FIELDS } from '../store-rules.ts'
import {
  APPEND,
  defineScript,
  ENTRIES,
  GET,
  ITEM_FUNCTIONS,
  LIST,
  PREAMBLE,
  type Script,
  WRITE,
} from './value-scripts.ts'

/**
 * `c:<name>` contains "spent held end generation". A counter that is created again after its expiry has a new
 * generation, so an old reservation cannot release its amount from the new counter. The keys and the field `lapses`
 * keep their names, because processes of different versions share the data.
 */
const COUNTER_FUNCTIONS = `
local MAX, LATE = ${MAX_AMOUNT}, ${LATE_SETTLEMENT_MS}
local function readCounter(name)
  local stored = call('GET', base .. ':c:' .. name)
  if not stored then return nil end
  local spent, held, ends, generation = string.match(stored, '^(%d+) (%d+) (%d+) (.*)$')
  if tonumber(ends) <= now then return nil end
  return { spent = tonumber(spent), held = tonumber(held), ends = tonumber(ends), generation = generation }
end
local function writeCounter(name, counter)
  local value = text(counter.spent) .. ' ' .. text(counter.held) .. ' ' .. text(counter.ends) .. ' ' .. counter.generation
  call('SET', base .. ':c:' .. name, value, 'PX', lifetime(counter.ends))
end
local function readReservation(id)
  local stored = call('GET', base .. ':t:' .. id)
  if not stored then return nil end
  local reservation = cjson.decode(stored)
  if reservation.lapses + LATE <= now then return nil end
  return reservation
end
local function writeReservation(id, reservation)
  call('SET', base .. ':t:' .. id, cjson.encode(reservation), 'PX', lifetime(reservation.lapses + LATE))
end
local function release(reservation)
  for _, hold in ipairs(reservation.holds) do
    local counter = readCounter(hold[1])
    if counter and counter.generation == hold[2] then
      counter.held = math.max(0, counter.held - tonumber(hold[3]))
      writeCounter(hold[1], counter)
    end
  end
end
local function releaseExpired()
  for _, id in ipairs(call('ZRANGEBYSCORE', base .. ':lapses', '-inf', text(now), 'LIMIT', 0, 1000)) do
    local reservation = readReservation(id)
    if reservation then
      release(reservation)
      reservation.holds = {}
      writeReservation(id, reservation)
    end
    call('ZREM', base .. ':lapses', id)
  end
end
local function levelOf(counter)
  return counter and math.min(MAX, counter.spent + counter.held) or 0
end
`

const TALLY_FUNCTIONS = `
local function addTally(tally)
  local key = base .. ':y:' .. tally.name
  if tally.ends and tally.ends <= now then return end
  local ends = call('HGET', key, 'ends')
  if ends and tonumber(ends) <= now then call('DEL', key) end
  if tally.ends then
    call('HSET', key, 'ends', text(tally.ends))
    call('PEXPIRE', key, lifetime(tally.ends))
  end
  local limit = ${MAX_FIELDS} + call('HEXISTS', key, 'ends')
  for field, amount in pairs(tally.amounts) do
    local stored = call('HGET', key, 'f' .. field)
    local fits = stored or call('HLEN', key) < limit
    if not fits then
      local word = string.match(field, '^([^ ]*) ')
      if word then
        field = word .. ' ${OTHER}'
        stored = call('HGET', key, 'f' .. field)
        fits = stored or call('HLEN', key) < limit + ${MAX_OTHER_FIELDS}
      end
    end
    if fits then
      local sum = tonumber(stored or '0') + amount
      call('HSET', key, 'f' .. field, text(math.max(-MAX, math.min(MAX, sum))))
    end
  end
end
`

const RESERVE: Script = defineScript(`${PREAMBLE}${COUNTER_FUNCTIONS}
releaseExpired()
if readReservation(request.reservation) then return cjson.encode({ error = 'duplicate' }) end
local counters, before, levels = {}, {}, {}
for index, claim in ipairs(request.claims) do
  if claim.ends <= now then return cjson.encode({ error = 'expired', counter = claim.counter }) end
  counters[index] = readCounter(claim.counter)
  before[index] = levelOf(counters[index])
  levels[index] = text(before[index])
end
local granted, refused = nil, nil
for index, claim in ipairs(request.claims) do
  local needed = claim.amount
  if claim.elastic then needed = math.min(claim.amount, request.minimum or claim.amount) end
  local remaining = claim.max - before[index]
  if needed > remaining then refused = index break end
  if claim.elastic then granted = math.min(granted or MAX, claim.amount, remaining) end
end
if refused then return cjson.encode({ refused = refused - 1, levels = levels }) end
local holds = {}
for index, claim in ipairs(request.claims) do
  local amount = claim.elastic and granted or claim.amount
  local counter = counters[index] or { spent = 0, held = 0, ends = claim.ends, generation = request.reservation }
  counter.held = counter.held + amount
  counter.ends = math.max(counter.ends, claim.ends)
  writeCounter(claim.counter, counter)
  holds[index] = { claim.counter, counter.generation, text(amount) }
  levels[index] = text(before[index] + amount)
end
local expires = now + request.expiresAfter
writeReservation(request.reservation, { lapses = expires, holds = holds })
call('ZADD', base .. ':lapses', text(expires), request.reservation)
keepFor(base .. ':lapses', request.expiresAfter + LATE)
return cjson.encode({ granted = text(granted or 0), levels = levels })
`)

/** `request.force` charges an owner that lacks the reservation, because another owner has settled it. */
const SETTLE: Script = defineScript(`${PREAMBLE}${COUNTER_FUNCTIONS}${ITEM_FUNCTIONS}${TALLY_FUNCTIONS}
releaseExpired()
local id = request.reservation
local reservation = readReservation(id)
if reservation and reservation.settled then return '{"repeated":true}' end
if not reservation and not request.force then return '{}' end
if reservation then
  release(reservation)
  call('DEL', base .. ':t:' .. id)
  call('ZREM', base .. ':lapses', id)
end
if request.mark then writeReservation(id, { lapses = now, holds = {}, settled = true }) end
for _, charge in ipairs(request.charges) do
  local counter = readCounter(charge.counter)
  if not counter and charge.ends > now then
    counter = { spent = 0, held = 0, ends = charge.ends, generation = id .. '!' }
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

export const SHRINK: Script = defineScript(`${PREAMBLE}${COUNTER_FUNCTIONS}
local reservation = readReservation(request.reservation)
if not reservation then return '{}' end
for _, hold in ipairs(reservation.holds) do
  local counter = readCounter(hold[1])
  local excess = tonumber(hold[3]) - request.amount
  if request.counters[hold[1]] and excess > 0 then
    hold[3] = text(request.amount)
    if counter and counter.generation == hold[2] then
      counter.held = math.max(0, counter.held - excess)
      writeCounter(hold[1], counter)
    end
  end
end
writeReservation(request.reservation, reservation)
return '{}'
`)

const READ_LEVELS: Script = defineScript(`${PREAMBLE}${COUNTER_FUNCTIONS}
releaseExpired()
local levels = {}
for index, name in ipairs(request.counters) do
  local counter = readCounter(name)
  levels[index] = { text(counter and counter.spent or 0), text(counter and counter.held or 0) }
end
return cjson.encode(levels)
`)

const READ_TALLIES: Script = defineScript(`${PREAMBLE}
local tallies = {}
for index, name in ipairs(request.names) do
  local fields, sums, ends = call('HGETALL', base .. ':y:' .. name), {}, nil
  for at = 1, #fields, 2 do
    if fields[at] == 'ends' then ends = tonumber(fields[at + 1]) else sums[string.sub(fields[at], 2)] = fields[at + 1] end
  end
  tallies[index] = (ends and ends <= now) and {} or sums
end
return cjson.encode(tallies)
`)

export const OPERATION_SCRIPTS: Readonly<Record<RemoteOperation, Script>> = {
  read_value: GET,
  write_value: WRITE,
  list_keys: LIST,
  append: APPEND,
  read_entries: ENTRIES,
  reserve_claims: RESERVE,
  settle_reservation: SETTLE,
  read_levels: READ_LEVELS,
  read_tallies: READ_TALLIES,
}
