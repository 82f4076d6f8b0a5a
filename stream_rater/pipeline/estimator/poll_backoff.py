"""Sets how long an estimator's poll waits for a first record, and for more records after it.

While rounds wait for the store, the estimator polls often at first, and less often the longer it
waits. A wave has a fixed cost, so where many small rounds arrive, each poll gathers them for a
moment.
"""

from stream_rater.pipeline.estimator.progress import InFlightWindow, Progress

IDLE_S = 0.1

BUSY_S = 0.001
"""The first time-out while rounds wait for the store, in seconds. It grows with the number of turns
without progress."""

APPLIED_S = 0.5e-6
"""The least time that one update takes the store and the updaters, in seconds. With many updates in
flight, polling sooner only costs them time."""

IN_NO_HURRY = 100
"""After a piece of an oversize round was sent, polls last as long as after this many turns without
progress. The store is busy for longer than that, and polling costs it time."""

GATHER_S = 0.015

FEW_ROUNDS, MANY_PLAYERS = 8, 2000
"""A wave with at most FEW_ROUNDS rounds comes rarely enough, and one with at least MANY_PLAYERS
players is large enough. After any other wave the next poll gathers for GATHER_S."""

READ_AHEAD = 4
"""The estimator stops reading while this many waves' worth of players, or of offsets, wait in
memory."""

PLAYERS_IN_FLIGHT = 20
"""The estimator stops sending while this many waves' worth of players are in parts not seen
applied."""

WAVES_IN_FLIGHT, LONGEST_IN_FLIGHT_S = 2, 0.5
"""The estimator also stops sending while WAVES_IN_FLIGHT waves, with enough players in all, were
not seen applied; each counts for at most LONGEST_IN_FLIGHT_S. Rounds that arrive meanwhile make one
larger wave. A hot ladder then takes 15 % less CPU time."""

COMMIT_EVERY_S = 0.1
"""The shortest time between two commits of offsets. A transaction takes some 10 ms. Records that
are not committed are read again after a crash, and found to be scattered."""


def too_many(
    progress: Progress, in_flight: InFlightWindow, wave_players: int, now_s: float
) -> bool:
    """Whether so much is in parts not seen applied that no wave is sent."""
    if len(progress) > PLAYERS_IN_FLIGHT * wave_players:
        return True
    return in_flight.has(WAVES_IN_FLIGHT, min(MANY_PLAYERS, WAVES_IN_FLIGHT * wave_players), now_s)


class PollBackoff:
    """The poll timing of one estimator."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._turns_waited = 0
        """Turns since the last progress while rounds wait."""
        self._corrected = False
        """Whether a piece of the work on a correction was done since the last poll."""
        self.gather_s = 0.0
        """How long the next poll gathers, in seconds."""

    def timeout_s(self, *, waiting: bool, in_flight: int) -> float:
        """The time-out of the next poll. `waiting`: rounds wait; `in_flight`: players in parts not
        seen applied."""
        waiting, self._corrected = waiting or self._corrected, False
        if not waiting:
            return self._idle_s
        return min(
            self._idle_s, max(APPLIED_S * in_flight, BUSY_S * (1 + self._turns_waited // 10))
        )

    def began_turn(self) -> None:
        """Count a turn that begins while rounds wait."""
        self._turns_waited += 1

    def progressed(self, *, hurry: bool = True) -> None:
        """Note progress: rounds were rated, or a piece was read. `hurry=False`: a piece was
        sent."""
        self._turns_waited = 0 if hurry else IN_NO_HURRY

    def corrected(self) -> None:
        """Note that a piece of the work on a correction was done: there may be more of it."""
        self.progressed()
        self._corrected = True

    def held_beliefs(self) -> None:
        """Note that rounds wait that need not wait for the store: the next poll gathers nothing."""
        self.gather_s = 0.0

    def chose_wave(self, rounds: int, players: int) -> None:
        """Note the size of the last wave."""
        small = rounds > FEW_ROUNDS and players < MANY_PLAYERS
        self.gather_s = GATHER_S if small else 0.0
