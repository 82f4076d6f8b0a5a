"""Read-only scripts for Redis, used where several values must be read at one instant.

The scripts about a ladder have the keys of `LadderKeys`, in this order.
The first argument is a number of positions, and the positions follow it. An answer is given only if
the ladder's index has everything before these positions, and each of its keys has its stored size.
So there is no answer if the index or one of its keys is lost, or if Redis has restored an older
state. Without positions nothing is checked. A script returns its status (ANSWERED, INCOMPLETE or
ABSENT). After ANSWERED, the answer follows, then the ladder's positions of these partitions.

In `ranks` the score is minus the displayed rating, and members of equal score are in order of their
bytes. A rank is 1 plus the number of members with a lesser score.
"""

from stream_rater.adapters.redis.index_keys import SIZES

ANSWERED, INCOMPLETE, ABSENT = 1, 0, -1

ROOT = "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')"
"""Key: the root. Returns its members and scores."""

NAMED = """
local found = {}
for i, member in ipairs(ARGV) do found[i] = redis.call('ZSCORE', KEYS[1], member) end
return found
"""
"""Key: the root. Arguments: some of its members. Returns the score of each, nil if it has none."""

_CHECKED = f"""
local players, ranks, bins, histories, state, dues = unpack(KEYS)
local count = tonumber(ARGV[1])
local function given(i) return ARGV[count + 1 + i] end

local seen = {{}}

local function is_behind()
  for first = 0, count - 1, 1000 do
    local names = {{}}
    for p = first, math.min(first + 999, count - 1) do names[#names + 1] = p end
    local found = redis.call('HMGET', state, unpack(names))
    for i, p in ipairs(names) do
      seen[p + 1] = found[i] or '0'
      if tonumber(found[i] or 0) < tonumber(ARGV[p + 2]) then return true end
    end
  end
end

local function sizes()
  local found = redis.call('HLEN', players) .. ' ' .. redis.call('ZCARD', ranks) .. ' '
    .. redis.call('HLEN', bins) .. ' ' .. redis.call('HLEN', histories)
  local waiting = redis.call('ZCARD', dues)
  return waiting == 0 and found or found .. ' ' .. waiting
end

if count > 0 then
  if redis.call('HLEN', state) == 0 then return {{{ABSENT}}} end
  if is_behind() or sizes() ~= redis.call('HGET', state, '{SIZES.decode()}') then
    return {{{INCOMPLETE}}}
  end
end
"""

LADDER = f"""{_CHECKED}
return {{{ANSWERED}, {{
  redis.call('HGET', state, given(1)), redis.call('ZCARD', ranks),
  redis.call('HGETALL', bins)
}}, seen}}
"""
"""Argument: the field of the summary. Answers with the summary, the number of listed players, and
the bins with their counts."""

PLAYERS = f"""{_CHECKED}
return {{{ANSWERED}, redis.call('HMGET', players, unpack(ARGV, count + 2)), seen}}
"""
"""Arguments: players. Answers with their records."""

HISTORY = f"""{_CHECKED}
return {{{ANSWERED}, redis.call('HGET', histories, given(1)), seen}}
"""
"""Argument: a player. Answers with the player's history."""

PLAYER = f"""{_CHECKED}
local found = redis.call('HGET', players, given(1))
local score = redis.call('ZSCORE', ranks, given(1))
local better = score and redis.call('ZCOUNT', ranks, '-inf', '(' .. score)
return {{{ANSWERED}, {{found, better, redis.call('ZCARD', ranks)}}, seen}}
"""
"""Argument: a player. Answers with the player's record, the number of better players (nil if the
player is not listed), and the number of listed players."""

_PAGE = f"""{_CHECKED}
local function page(start, limit, with_players)
  local rows = redis.call('ZRANGE', ranks, start, start + limit, 'WITHSCORES')
  local better = rows[2] and redis.call('ZCOUNT', ranks, '-inf', '(' .. rows[2]) or 0
  local found, names = {{}}, {{}}
  for i = 1, with_players == '1' and #rows or 0, 2 do names[#names + 1] = rows[i] end
  if #names > 0 then found = redis.call('HMGET', players, unpack(names)) end
  return {{{ANSWERED}, {{start, rows, better, redis.call('ZCARD', ranks), found}}, seen}}
end
"""
"""A page, with one more row if there is one: the number of rows before it, its rows as members and
scores, the number of players better than its first, the number of listed players, and the records
of the rows' players if the last argument is 1."""

AROUND = f"""{_PAGE}
local index, limit = redis.call('ZRANK', ranks, given(1)), tonumber(given(2))
if not index then return {{{ANSWERED}, false, seen}} end
return page(math.max(0, index - math.floor(limit / 2)), limit, given(3))
"""
"""Arguments: a player, the number of rows, and whether the players are wanted. Answers with the
page around the player, as far as there are rows; nil if the player is not listed."""

AFTER = f"""{_PAGE}
local player, score = given(1), given(2)

local function is_after(other) -- by bytes: Lua compares by the server's language
  for i = 1, math.min(#other, #player) do
    local a, b = string.byte(other, i), string.byte(player, i)
    if a ~= b then return a > b end
  end
  return #other > #player
end

local low = redis.call('ZCOUNT', ranks, '-inf', '(' .. score)
local high = redis.call('ZCOUNT', ranks, '-inf', score)
while low < high do
  local middle = math.floor((low + high) / 2)
  if is_after(redis.call('ZRANGE', ranks, middle, middle)[1]) then
    high = middle
  else
    low = middle + 1
  end
end
return page(low, tonumber(given(3)), given(4))
"""
"""Arguments: a player, a score, the number of rows, and whether the players are wanted. Answers
with the page after the place that this player has, or would have, with this score."""

TOP = f"{_PAGE} return page(0, tonumber(given(1)), given(2))"
"""Arguments: the number of rows, and whether the players are wanted. Answers with the first
page."""
