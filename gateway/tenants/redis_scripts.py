"""The Lua scripts behind `shared_counts`: each is one atomic step over the keys of one tenant. Knows no Python types.

What requests under way hold (slots, reserved nano-dollars) is a lease: KEYS[1] has each request's end of lease, KEYS[2]
what it holds ("slot:k1=1 usd:k1:2026-11=5000"), KEYS[3] the sum of it by field. A gateway renews its leases; what a
dead one held comes free by itself. Amounts stay below 2^53, up to which Lua's numbers are exact.
"""

_PRELUDE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000

local function level(key, limit)
  local kept = redis.call('HMGET', key, 'level', 'at')
  if not kept[1] then return limit end
  return math.min(limit, tonumber(kept[1]) + math.max(0, now - tonumber(kept[2])) * limit / 60000)
end

local function keep(key, limit, amount)
  redis.call('HSET', key, 'level', string.format('%.6f', amount), 'at', string.format('%.3f', now))
  -- a bucket that would be full again is as good as none
  redis.call('PEXPIRE', key, math.ceil((limit - amount) * 60000 / limit) + 1000)
end

local function held(field) return tonumber(redis.call('HGET', KEYS[3], field) or '0') end

local function release(ticket)
  local value = redis.call('HGET', KEYS[2], ticket)
  if value then
    for field, amount in string.gmatch(value, '(%S+)=(%d+)') do
      if redis.call('HINCRBY', KEYS[3], field, '-' .. amount) <= 0 then redis.call('HDEL', KEYS[3], field) end
    end
  end
  redis.call('HDEL', KEYS[2], ticket)
  redis.call('ZREM', KEYS[1], ticket)
end

local function release_expired()
  for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do release(ticket) end
end

local function hold(ticket, fields, lease_ms)
  for field, amount in string.gmatch(fields, '(%S+)=(%d+)') do redis.call('HINCRBY', KEYS[3], field, amount) end
  local before = redis.call('HGET', KEYS[2], ticket)
  redis.call('HSET', KEYS[2], ticket, before and (before .. ' ' .. fields) or fields)
  redis.call('ZADD', KEYS[1], now + lease_ms, ticket)
  for index = 1, 3 do redis.call('PEXPIRE', KEYS[index], lease_ms * 2) end
end
"""

# KEYS 1-3, request buckets...; ARGV ticket, lease_ms, fields to hold, number of slots,
# (field, limit) of each slot..., limits of the buckets...
# -> index of what refused (slots first, from 1; 0: nothing), slots taken..., requests left...
ADMIT = (
    _PRELUDE
    + """
local ticket, lease_ms, fields, num_slots = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local num_buckets = #KEYS - 3
local refused, found = 0, {}
release_expired()
for index = 1, num_slots do
  local taken = held(ARGV[3 + 2 * index])
  found[index] = tostring(taken)
  if refused == 0 and taken >= tonumber(ARGV[4 + 2 * index]) then refused = index end
end
local limits = 4 + 2 * num_slots
for index = 1, num_buckets do
  local left = level(KEYS[3 + index], tonumber(ARGV[limits + index]))
  found[num_slots + index] = tostring(left)
  if refused == 0 and left < 1 then refused = num_slots + index end
end
if refused > 0 then return {refused, unpack(found)} end
for index = 1, num_buckets do
  local left = tonumber(found[num_slots + index]) - 1
  keep(KEYS[3 + index], tonumber(ARGV[limits + index]), left)
  found[num_slots + index] = tostring(left)
end
if fields ~= '' then hold(ticket, fields, lease_ms) end
return {0, unpack(found)}
"""
)

# KEYS 1-3, spending by day, by month, token buckets...; ARGV ticket, lease_ms, fields to hold, tokens, cost,
# number of allowances, (4 or 5: the key of its spending, owner, field, hard limit or -1) of each...,
# limits of the buckets...
# -> index of what refused (buckets first, from 1; 0: nothing; -1: something is not seeded), then as strings: tokens
#    left..., spent and held of each allowance... ('': not seeded), epochs of the two keys of spending
RESERVE = (
    _PRELUDE
    + """
local ticket, lease_ms, fields = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local tokens, cost, num_allowances = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local num_buckets = #KEYS - 5
local limits = 6 + 4 * num_allowances
local refused, unseeded, found = 0, false, {}
release_expired()
for index = 1, num_buckets do
  local left = level(KEYS[5 + index], tonumber(ARGV[limits + index]))
  found[index] = tostring(left)
  if refused == 0 and tokens > left then refused = index end
end
for index = 1, num_allowances do
  local at = 6 + 4 * (index - 1)
  local spent = redis.call('HGET', KEYS[tonumber(ARGV[at + 1])], ARGV[at + 2])
  local reserved, hard = held(ARGV[at + 3]), tonumber(ARGV[at + 4])
  found[num_buckets + 2 * index - 1] = spent or ''
  found[num_buckets + 2 * index] = string.format('%.0f', reserved)
  if not spent then
    unseeded = true
  elseif refused == 0 and hard >= 0 and tonumber(spent) + reserved + cost > hard then
    refused = num_buckets + index
  end
end
found[#found + 1] = redis.call('HGET', KEYS[4], 'epoch') or ''
found[#found + 1] = redis.call('HGET', KEYS[5], 'epoch') or ''
if unseeded then return {-1, unpack(found)} end
if refused > 0 then return {refused, unpack(found)} end
for index = 1, num_buckets do
  local left = tonumber(found[index]) - tokens
  keep(KEYS[5 + index], tonumber(ARGV[limits + index]), left)
  found[index] = tostring(left)
end
if fields ~= '' then hold(ticket, fields, lease_ms) end
return {0, unpack(found)}
"""
)

# KEYS 1-3, spending by day, by month, token buckets...; ARGV ticket, tokens to give back, cost, number of allowances,
# (4 or 5, owner, field) of each..., limits of the buckets...
# -> spent and held of each allowance... ('': not seeded), epochs of the two keys of spending
SETTLE = (
    _PRELUDE
    + """
local ticket, give_back, cost, num_allowances = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local limits, found = 4 + 3 * num_allowances, {}
release(ticket)
if give_back ~= 0 then
  for index = 1, #KEYS - 5 do
    local limit = tonumber(ARGV[limits + index])
    keep(KEYS[5 + index], limit, math.min(limit, level(KEYS[5 + index], limit) + give_back))
  end
end
for index = 1, num_allowances do
  local at = 4 + 3 * (index - 1)
  local key, owner = KEYS[tonumber(ARGV[at + 1])], ARGV[at + 2]
  local seeded = redis.call('HEXISTS', key, owner) == 1
  found[2 * index - 1] = seeded and string.format('%.0f', redis.call('HINCRBY', key, owner, cost)) or ''
  found[2 * index] = string.format('%.0f', held(ARGV[at + 3]))
end
found[#found + 1] = redis.call('HGET', KEYS[4], 'epoch') or ''
found[#found + 1] = redis.call('HGET', KEYS[5], 'epoch') or ''
return found
"""
)

# KEYS spending...; ARGV an epoch for keys that are new, (index of its key, owner, spent at least) of each...,
# ends of the keys in ms since 1970...
# -> spent of each
RAISE = """
local found, count = {}, (#ARGV - 1 - #KEYS) / 3
for index = 1, count do
  local at = 1 + 3 * (index - 1)
  local key, owner, least = KEYS[tonumber(ARGV[at + 1])], ARGV[at + 2], ARGV[at + 3]
  local known = redis.call('HGET', key, owner)
  if not known or tonumber(known) < tonumber(least) then redis.call('HSET', key, owner, least) end
  found[index] = redis.call('HGET', key, owner)
end
for index, key in ipairs(KEYS) do
  redis.call('HSETNX', key, 'epoch', ARGV[1])
  redis.call('PEXPIREAT', key, ARGV[1 + 3 * count + index])
end
return found
"""

# KEYS 1-3; ARGV lease_ms, (ticket, what it holds) of each...
RENEW = (
    _PRELUDE
    + """
local lease_ms = tonumber(ARGV[1])
for index = 2, #ARGV, 2 do
  if redis.call('HEXISTS', KEYS[2], ARGV[index]) == 1 then
    redis.call('ZADD', KEYS[1], now + lease_ms, ARGV[index])
  else
    hold(ARGV[index], ARGV[index + 1], lease_ms)  -- Redis had lost it
  end
end
for index = 1, 3 do redis.call('PEXPIRE', KEYS[index], lease_ms * 2) end
return 1
"""
)

# KEYS 1-3; ARGV tickets...
RELEASE = (
    _PRELUDE
    + """
for _, ticket in ipairs(ARGV) do release(ticket) end
return 1
"""
)
