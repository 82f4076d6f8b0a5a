"""Sets how long an estimator's poll waits for the first record, and then for more records.

While rounds wait for the store, the estimator polls often at first, and less often the longer it
waits. A wave has a fixed cost, so where many small rounds arrive, each poll gathers them for a
moment.
"""

from stream_rater.pipeline.estimator.progress import InFlightWindow, Progress

IDLE_S = 0.1

BUSY_S = 0.001
"""The first time-out while rounds wait for the store, in seconds. It grows with the number of
passes of the loop without progress."""

APPLIED_S = 0.5e-6
"""The shortest time in which the store and the updaters process one row, in seconds. With many rows
in flight, polling sooner only slows them."""

IN_NO_HURRY = 100
"""After a piece of an oversize round was sent, polls last as long as after this many passes without
progress. The store is busy for longer than that, and polling slows it."""

GATHER_S = 0.015

FEW_ROUNDS, MANY_PLAYERS = 8, 2000
"""Waves with at most FEW_ROUNDS rounds come rarely enough, and a wave with at least MANY_PLAYERS
players is large enough. After any other wave, the next poll gathers records for GATHER_S
seconds."""

READ_AHEAD = 4
"""The estimator stops reading while this many waves' worth of players, or of offsets, wait in
memory."""

PLAYERS_IN_FLIGHT = 20
"""The estimator stops sending while parts not seen applied have more than this many waves' worth of
players."""

WAVES_IN_FLIGHT, LONGEST_IN_FLIGHT_S = 2, 0.5
"""The estimator also stops sending while WAVES_IN_FLIGHT waves, with enough players in all, were
not seen applied. Each wave counts for at most LONGEST_IN_FLIGHT_S seconds. Rounds that arrive while
it waits form one larger wave. A busy ladder then takes 15 % less CPU time."""

COMMIT_EVERY_S = 0.1
"""The shortest time between two commits of offsets. A transaction takes some 10 ms. After a crash,
records that are not committed are read again, and their rounds are found to be sent."""


def too_many(
    progress: Progress, in_flight: InFlightWindow, wave_players: int, now_s: float
) -> bool:
    """Whether parts not seen applied have so many players that no further wave is sent."""
    if len(progress) > PLAYERS_IN_FLIGHT * wave_players:
        return True
    return in_flight.has(WAVES_IN_FLIGHT, min(MANY_PLAYERS, WAVES_IN_FLIGHT * wave_players), now_s)


class PollBackoff:
    """The poll timing of one estimator."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._turns_waited = 0
        """The number of passes since the last progress while rounds wait."""
        self._corrected = False
        """Whether a piece of the work on a correction was done since the last poll."""
        self.gather_s = 0.0
        """How long the next poll gathers, in seconds."""

    def timeout_s(self, *, waiting: bool, in_flight: int) -> float:
        """The time-out of the next poll, in seconds. `waiting` says that rounds wait; `in_flight`
        is the number of players in parts not seen applied."""
        waiting, self._corrected = waiting or self._corrected, False
        if not waiting:
            return self._idle_s
        return min(
            self._idle_s, max(APPLIED_S * in_flight, BUSY_S * (1 + self._turns_waited // 10))
        )

    def began_turn(self) -> None:
        """Count a pass of the loop that begins while rounds wait."""
        self._turns_waited += 1

    def progressed(self, *, hurry: bool = True) -> None:
        """Record progress: rounds were rated, or a piece was read. `hurry=False` says that a piece
        was sent."""
        self._turns_waited = 0 if hurry else IN_NO_HURRY

    def corrected(self) -> None:
        """Record that a piece of the work on a correction was done. More of this work may be
        left."""
        self.progressed()
        self._corrected = True

    def held_beliefs(self) -> None:
        """Record that some waiting rounds have cached beliefs and need not wait for the store. The
        next poll gathers nothing."""
        self.gather_s = 0.0

    def chose_wave(self, rounds: int, players: int) -> None:
        """Record the size of the last wave."""
        small = rounds > FEW_ROUNDS and players < MANY_PLAYERS
        self.gather_s = GATHER_S if small else 0.0
