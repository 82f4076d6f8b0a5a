"""Learns how sure the predictions of a ladder should be, from its newest rounds.

The log has the sides of a round. The index has the changes of its players, and so, in the change
before each, the ratings before the round. Each round is predicted by these, as `predict` would have
done, with the present parameters; `evaluation.calibrating` learns from that by which factor the
variance is too small. So the factor follows from what index and log have, not from the order in
which they were read. A round is left out if the index does not have all ratings before it, or if a
correction that was not batched has voided or amended it.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing

import numpy as np

from stream_rater.columns.ranges import bounds
from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Record
from stream_rater.evaluation.calibrating import factor_of
from stream_rater.index.reader import Incomplete, IndexReader
from stream_rater.places.port import Place
from stream_rater.rating import levels
from stream_rater.rating.parameters import PlacingNewcomers, RatingConfig
from stream_rater.rating.stages import rule_of
from stream_rater.rating.wins import of_wave
from stream_rater.rounds.decoder import RoundDecoder, kind_of
from stream_rater.serve.bodies import CalibrationAnswer as Fitted
from stream_rater.serve.door.following import FAILURES
from stream_rater.serve.door.outcomes import CORRECTED

MOST_CHANGES = 10_000  # The number of changes of players that a calibration is learned from.
AT_ONCE, PAUSE_S = 100, 0.005  # How many changes are read before a pause for other requests.
MOST_BYTES, STRIDE = 32 * 1024 * 1024, 1000  # The most bytes of the log, and records at once.
AGAIN_S, MOST_S = 60.0, 3600.0  # Until it is learned again; each time twice as long, up to MOST_S.

Prior = tuple[float, float, int]  # A player's mu and sigma before a round, and number of rounds.
Past = Mapping[int, Mapping[str, Prior]]  # By offset of a round, what is known of its players.


class Calibrations:
    """What was learned about all ladders. It is learned in the background, about one ladder at a
    time, and no request waits for it. It is for one event loop."""

    def __init__(
        self, index: IndexReader, ladders: Ladders, connect: Callable[[], Place],
        troubled: Callable[[str], None], clock: Callable[[], float],
    ) -> None:  # fmt: skip
        """`connect` opens the log; `troubled` receives why it cannot be read. `clock`: seconds."""
        self._index, self._ladders, self._connect = index, ladders, connect
        self._troubled, self._clock = troubled, clock
        self._fitted: dict[tuple[str, RatingConfig], Fitted | None] = {}
        self._plan: dict[tuple[str, RatingConfig], tuple[float, float]] = {}
        """By ladder and parameters, when to learn again, and after how long the next time."""
        self.task: asyncio.Task[None] | None = None  # What learns.

    def of(self, ladder: str, config: RatingConfig) -> Fitted | None:
        """What was learned about a ladder with these parameters; None if nothing was yet."""
        key, now_s = (ladder, config), self._clock()
        at_s, wait_s = self._plan.get(key, (now_s, AGAIN_S))
        if now_s >= at_s and (self.task is None or self.task.done()):
            self._plan[key] = now_s + wait_s, min(2.0 * wait_s, MOST_S)
            self.task = asyncio.get_running_loop().create_task(self._learn(ladder, config))
        return self._fitted.get(key)

    async def _learn(self, ladder: str, config: RatingConfig) -> None:
        try:
            past = await self._past(ladder, config)
            self._fitted[ladder, config] = await asyncio.to_thread(self._fit, ladder, config, past)
        except (*FAILURES, Incomplete) as error:
            self._troubled(f"predictions of {ladder!r} are not calibrated: {error}")

    async def _past(self, ladder: str, config: RatingConfig) -> Past:
        rule, corrected, past = rule_of(config), set[str](), dict[int, dict[str, Prior]]()
        last = b"\xff"  # no key of a change begins with this byte
        for _ in range(MOST_CHANGES // AT_ONCE):
            some = await self._index.past_changes(ladder, AT_ONCE, last)
            for _, player, change, before in some:
                if change.cause in CORRECTED:
                    corrected.add(change.round_id)
                elif change.cause is None and change.round_id not in corrected:
                    own = past.setdefault(change.offset, {})
                    if before is not None and before.rounds:
                        own[player] = before.mu, before.sigma, before.rounds
                    elif change.rounds == 1:
                        own[player] = rule.initial_mu, rule.initial_sigma, 0
            if len(some) < AT_ONCE:
                break
            last = some[-1][0]
            await asyncio.sleep(PAUSE_S)
        return past

    def _fit(self, ladder: str, config: RatingConfig, past: Past) -> Fitted | None:
        """Learn from past rounds, in the thread."""
        with closing(self._connect()) as place:
            records = _records(place, partition_of(ladder, place.partitions), past)
        rounds, rejections = RoundDecoder(self._ladders).decode(records)
        valid = [each.offset for each, why in zip(records, rejections, strict=True) if why is None]
        names, edges = rounds.names.texts(), bounds(rounds.sizes).tolist()
        kept, rows = list[int](), list[Prior]()
        for i, offset in enumerate(valid):
            own, priors = names[edges[i] : edges[i + 1]], past[offset]
            if rounds.heads[i].ladder == ladder and priors.keys() == {*own}:
                kept.append(i)
                rows += [priors[player] for player in own]
        if not kept:
            return None
        mu, sigma, played = np.array(rows).T.copy()
        wave = rounds.take(np.array(kept)).wave_without_beliefs(config)
        wave = wave._replace(mu=mu, sigma=sigma, rounds=played.astype(np.int64))
        if isinstance(config, PlacingNewcomers) and config.places_newcomers:
            levels.place_newcomers(config, wave)
        factor = factor_of(wave.round_starts, wave.place, of_wave(config, wave))
        return Fitted(rounds=len(kept), factor=factor)


def _records(place: Place, partition: int, wanted: Past) -> list[Record]:
    """The rounds at these offsets of a partition, in order; the newest ones of MOST_BYTES."""
    found, size, end = list[Record](), 0, max(wanted, default=-1) + 1
    first = max(min(wanted, default=0), place.starts()[partition])
    while end > first and size < MOST_BYTES:
        at = low = max(end - STRIDE, first)
        while at < end:
            some = place.read_again(partition, at, end)
            size += sum(len(each.value or b"") for each in some)
            found += [each for each in some if each.offset in wanted and not kind_of(each)]
            at = some[-1].offset + 1 if some else end
        end = low
    return sorted(found, key=lambda each: each.offset)
