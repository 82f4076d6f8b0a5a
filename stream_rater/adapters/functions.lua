#!lua name=stream_rater_3
-- The store's side of the protocol, where plain commands do not suffice: compare and set, atomic on
-- one shard, as a Redis Function.
--
-- The one key of a call is the shard's position. The keys of beliefs travel packed in one argument
-- and share the position's hash tag, so that all are in one slot. A changed function gets a new
-- library name and new function names, so that two releases can work side by side.

-- If 'applied' is ARGV[1], make it ARGV[2], remember the fresh rows ARGV[3] and write the beliefs in
-- ARGV[4]: for each hash how many (four bytes), its key, and field and value of each, all of them
-- behind their lengths (four bytes). Returns 1, or 0 where 'applied' was another.
local function apply(keys, args)
  local call, read, spread, packed = redis.call, struct.unpack, unpack, args[4]
  if (call('HGET', keys[1], 'applied') or '0') ~= args[1] then
    return 0
  end
  local formats = {}
  local at, count, key = 1
  while at <= #packed do
    count, key, at = read('<I4I4c0', packed, at)
    formats[count] = formats[count] or '<' .. string.rep('I4c0I4c0', count)
    local beliefs = {read(formats[count], packed, at)}
    at = table.remove(beliefs)
    call('HSET', key, spread(beliefs))
  end
  call('HSET', keys[1], 'applied', args[2], 'start', args[1], 'fresh', args[3])
  return 1
end

redis.register_function{function_name = 'stream_rater_3_apply', callback = apply}
