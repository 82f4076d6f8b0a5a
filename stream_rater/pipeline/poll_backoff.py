"""When an estimator looks for rounds: how long a poll waits for the first, and for others with it.

While rounds wait for the store it is asked again soon, and less and less often. What a wave costs,
however small, is more than what a little waiting does: where many rounds come, each poll gathers.
"""

IDLE_S = 0.1

BUSY_S = 0.001
"""How long a poll takes while rounds wait for the store; it grows with the time waited in vain."""

APPLIED_S = 0.5e-6
"""What an update takes the store and the updaters at the very least: where many are in flight, to
look sooner only costs them time."""

IN_NO_HURRY = 100
"""After a piece of a large round is sent, polls last as long as if so many turns had been in vain:
the store has work for longer than that, and looking after it costs it time."""

GATHER_S = 0.015

FEW_ROUNDS, MANY_PLAYERS = 8, 2000
"""Waves of no more rounds come seldom enough, and of more players are large enough, as it is."""

READ_AHEAD = 4
"""Reading rests while more than so many waves' players, or offsets, wait in memory."""

IN_FLIGHT = 20
"""Sending rests while more than so many waves' players are in parts not seen applied."""

AHEAD, LONGEST_AHEAD_S = 2, 0.5
"""It rests, too, while so many waves, none too small, were not seen applied, but for that time at
most: what comes meanwhile makes one large wave. A hot ladder takes 15 % less of all processors."""

COMMIT_EVERY_S = 0.1
"""How often offsets are committed at most. A transaction takes some 10 ms of a wave's way; what is
not committed is read again after a crash, and found scattered."""


class Pace:
    """Of one estimator."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._in_vain = 0
        """Turns since a round could be rated while some wait."""
        self.gather_s = 0.0
        """For the next poll."""

    def timeout_s(self, *, waiting: bool, in_flight: int) -> float:
        """For the next poll, by whether rounds wait, and by how many players are in parts."""
        if not waiting:
            return self._idle_s
        return min(self._idle_s, max(APPLIED_S * in_flight, BUSY_S * (1 + self._in_vain // 10)))

    def looked(self) -> None:
        """There are rounds, and a turn began."""
        self._in_vain += 1

    def came_on(self, *, hurry: bool = True) -> None:
        """Rounds were rated, or a piece of one was read, or, in no hurry, sent."""
        self._in_vain = 0 if hurry else IN_NO_HURRY

    def took(self, rounds: int, players: int) -> None:
        """A wave, of so many."""
        small = rounds > FEW_ROUNDS and players < MANY_PLAYERS
        self.gather_s = GATHER_S if small else 0.0
