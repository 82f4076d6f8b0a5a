"""What Redis is asked in one step where several answers must be of one instant: read-only scripts.

In `ranks` the score is minus the displayed rating, and members of equal score are in order of their
bytes. A rank is 1 and how many have a lesser score.
"""

ROOT = "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')"
"""Key: the root. Returns its members and scores."""

LADDER = """
return {
  redis.call('HGET', KEYS[1], ARGV[1]), redis.call('ZCARD', KEYS[2]), redis.call('HGETALL', KEYS[3])
}
"""
"""Keys: state, ranks, bins. Argument: the field of the summary. Returns the summary, how many are
listed, and the bins with their counts."""

PLAYER = """
local found = redis.call('HGET', KEYS[1], ARGV[1])
local score = redis.call('ZSCORE', KEYS[2], ARGV[1])
local better = score and redis.call('ZCOUNT', KEYS[2], '-inf', '(' .. score)
return {found, better, redis.call('ZCARD', KEYS[2])}
"""
"""Keys: players, ranks. Argument: a player. Returns the player's record, how many are better, or
nil for who is not listed, and how many are listed."""

_PAGE = """
local function page(start, limit)
  local rows = redis.call('ZRANGE', KEYS[1], start, start + limit, 'WITHSCORES')
  local better = rows[2] and redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. rows[2]) or 0
  return {start, rows, better, redis.call('ZCARD', KEYS[1])}
end
"""
"""A page, and one row more if there is one: how many stand before it, its rows as members and
scores, how many are better than its first, and how many are listed."""

AROUND = f"""{_PAGE}
local index, limit = redis.call('ZRANK', KEYS[1], ARGV[1]), tonumber(ARGV[2])
return index and page(math.max(0, index - math.floor(limit / 2)), limit)
"""
"""Key: ranks. Arguments: a player, and how many rows. Returns the page with the player in its
middle, as far as there are rows; nil if the player is not listed."""

BEHIND = f"""{_PAGE}
local player, score = ARGV[1], ARGV[2]

local function is_behind(other) -- by bytes: Lua compares by the server's language
  for i = 1, math.min(#other, #player) do
    local a, b = string.byte(other, i), string.byte(player, i)
    if a ~= b then return a > b end
  end
  return #other > #player
end

local low = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. score)
local high = redis.call('ZCOUNT', KEYS[1], '-inf', score)
while low < high do
  local middle = math.floor((low + high) / 2)
  if is_behind(redis.call('ZRANGE', KEYS[1], middle, middle)[1]) then
    high = middle
  else
    low = middle + 1
  end
end
return page(low, tonumber(ARGV[3]))
"""
"""Key: ranks. Arguments: a player, a score, and how many rows. Returns the page right behind where
this player stands with this score, or would stand."""

TOP = f"{_PAGE} return page(0, tonumber(ARGV[1]))"
"""Key: ranks. Argument: how many rows. Returns the first page."""
