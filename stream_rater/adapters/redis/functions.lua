#!lua name=stream_rater_6
-- The store's side of the protocol, where plain commands do not suffice: compare and set, atomic on
-- one shard, as a Redis Function.
--
-- A call declares every key that it touches: the shard's position, then the hashes of the beliefs
-- that it writes. They share a hash tag, so all are in one slot. Redis checks declared keys before
-- it runs a function. In a cluster whose slot is moving it refuses the call while some of them are
-- with another node; a user who may not write one of them is refused, too. Nothing is written then.
-- Keys that are not declared are checked one by one, when earlier writes have already been made.
--
-- A changed function gets a new library name and new function names, so that two releases can work
-- side by side.

-- If 'applied' is ARGV[1] and 'epoch' is ARGV[5], make 'applied' ARGV[2], remember the fresh rows
-- ARGV[3] and write the beliefs: ARGV[4] has a byte for each hash, in the order of the keys, with the
-- number of its beliefs. From ARGV[8] on there are field and value of each of them. A hash may be
-- declared several times.
-- Returns 1, or 0 where 'applied' or 'epoch' was another.
--
-- Every belief is two arguments. If all were packed into one, Lua would take longer to find them in
-- it than Redis takes to read them.
--
-- ARGV[7] says which record is the last before ARGV[2], and becomes 'tail'. Functions of older
-- releases leave 'tail' as it is, so it begins with the 'applied' that it belongs to.
--
-- ARGV[6] is how many of these beliefs were absent when they were read at this 'applied'; empty: not
-- counted. HSET returns how many fields are new. If that differs, beliefs were deleted from here by
-- somebody else, and others may be gone, too. The beliefs of this call are written then, but
-- 'applied' becomes -2: no worker goes on from there. Returns 0.
local function apply(keys, args)
  local call, counts, byte, spread = redis.call, args[4], string.byte, unpack
  if (call('HGET', keys[1], 'applied') or '0') ~= args[1] or
    (call('HGET', keys[1], 'epoch') or '') ~= args[5] then
    return 0
  end
  local first, new = 8, 0
  for i = 2, #keys do
    local last = first + 2 * byte(counts, i - 1) - 1
    new = new + call('HSET', keys[i], spread(args, first, last))
    first = last + 1
  end
  if args[6] ~= '' and new ~= tonumber(args[6]) then
    call('HSET', keys[1], 'applied', '-2', 'start', '-2', 'fresh', '')
    return 0
  end
  call('HSET', keys[1], 'applied', args[2], 'start', args[1], 'fresh', args[3],
    'tail', args[7])
  return 1
end

redis.register_function{function_name = 'stream_rater_6_apply', callback = apply}
