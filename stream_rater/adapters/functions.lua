#!lua name=stream_rater_2
-- The store's side of the protocol, as Redis Functions: each call is atomic on one shard.
--
-- The one key of a call is the shard's position. The keys of beliefs travel packed in one argument,
-- strings one after the other, each behind its length in four bytes, and share the position's hash
-- tag, so that all are in one slot. A changed function gets a new
-- library name and new function names, so that two releases can work side by side.

-- Read 'applied' and the first ARGV[2] bytes of the beliefs in ARGV[1] = key, field, key, field, ....
-- Returns {applied, one string}; a missing belief is that many zero bytes.
local function priors(keys, args)
  local call, unpack, sub = redis.call, struct.unpack, string.sub
  local packed, size = args[1], tonumber(args[2])
  local nothing = string.rep('\0', size)
  local found, count, at, key, field = {}, 0, 1
  while at <= #packed do
    key, field, at = unpack('<I4c0I4c0', packed, at)
    local belief = call('HGET', key, field)
    count = count + 1
    found[count] = belief and sub(belief, 1, size) or nothing
  end
  return {call('HGET', keys[1], 'applied') or '0', table.concat(found)}
end

-- Read the position and the whole beliefs in ARGV[1] = key, field, ....
-- Returns {applied, start, fresh, {belief or nil, ...}}.
local function beliefs(keys, args)
  local call, unpack, packed = redis.call, struct.unpack, args[1]
  local position = call('HMGET', keys[1], 'applied', 'start', 'fresh')
  local found, count, at, key, field = {}, 0, 1
  while at <= #packed do
    key, field, at = unpack('<I4c0I4c0', packed, at)
    count = count + 1
    found[count] = call('HGET', key, field)
  end
  return {position[1] or '0', position[2] or '0', position[3] or '', found}
end

-- Compare and set: if 'applied' is ARGV[1], make it ARGV[2], remember the fresh rows ARGV[3] and write
-- the beliefs in ARGV[4] = key, field, value, .... Returns 1, or 0 where 'applied' was another.
local function apply(keys, args)
  local call, unpack, packed = redis.call, struct.unpack, args[4]
  if (call('HGET', keys[1], 'applied') or '0') ~= args[1] then
    return 0
  end
  local at, key, field, value = 1
  while at <= #packed do
    key, field, value, at = unpack('<I4c0I4c0I4c0', packed, at)
    call('HSET', key, field, value)
  end
  call('HSET', keys[1], 'applied', args[2], 'start', args[1], 'fresh', args[3])
  return 1
end

redis.register_function{
  function_name = 'stream_rater_2_priors', callback = priors, flags = {'no-writes'}
}
redis.register_function{
  function_name = 'stream_rater_2_beliefs', callback = beliefs, flags = {'no-writes'}
}
redis.register_function{function_name = 'stream_rater_2_apply', callback = apply}
