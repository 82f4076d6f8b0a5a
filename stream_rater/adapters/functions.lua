#!lua name=stream_rater_1
-- The store's side of the protocol, as Redis Functions: each call is atomic on one shard.
--
-- The one key of a call is the shard's position. The keys of beliefs travel packed in one argument,
-- strings one after the other, each behind its length in four bytes, and share the position's hash
-- tag, so that all are in one slot. A changed function gets a new
-- library name and new function names, so that two releases can work side by side.

local function unpacked(packed)
  local unpack = struct.unpack
  local strings, at, size = {}, 1, #packed
  while at <= size do
    strings[#strings + 1], at = unpack('<I4c0', packed, at)
  end
  return strings
end

-- Read 'applied' and the first ARGV[2] bytes of the beliefs in ARGV[1] = key, field, key, field, ....
-- Returns {applied, one string}; a missing belief is that many zero bytes.
local function priors(keys, args)
  local call = redis.call
  local size = tonumber(args[2])
  local nothing = string.rep('\0', size)
  local wanted = unpacked(args[1])
  local found = {}
  for i = 1, #wanted, 2 do
    local belief = call('HGET', wanted[i], wanted[i + 1])
    found[#found + 1] = belief and string.sub(belief, 1, size) or nothing
  end
  return {call('HGET', keys[1], 'applied') or '0', table.concat(found)}
end

-- Read the position and the whole beliefs in ARGV[1] = key, field, ....
-- Returns {applied, start, fresh, {belief or nil, ...}}.
local function beliefs(keys, args)
  local call = redis.call
  local position = call('HMGET', keys[1], 'applied', 'start', 'fresh')
  local wanted = unpacked(args[1])
  local found = {}
  for i = 1, #wanted, 2 do
    found[#found + 1] = call('HGET', wanted[i], wanted[i + 1])
  end
  return {position[1] or '0', position[2] or '0', position[3] or '', found}
end

-- Compare and set: if 'applied' is ARGV[1], make it ARGV[2], remember the fresh rows ARGV[3] and write
-- the beliefs in ARGV[4] = key, field, value, .... Returns 1, or 0 where 'applied' was another.
local function apply(keys, args)
  local call = redis.call
  if (call('HGET', keys[1], 'applied') or '0') ~= args[1] then
    return 0
  end
  local writes = unpacked(args[4])
  for i = 1, #writes, 3 do
    call('HSET', writes[i], writes[i + 1], writes[i + 2])
  end
  call('HSET', keys[1], 'applied', args[2], 'start', args[1], 'fresh', args[3])
  return 1
end

redis.register_function{
  function_name = 'stream_rater_1_priors', callback = priors, flags = {'no-writes'}
}
redis.register_function{
  function_name = 'stream_rater_1_beliefs', callback = beliefs, flags = {'no-writes'}
}
redis.register_function{function_name = 'stream_rater_1_apply', callback = apply}
