"""Gives players of a ladder the ratings that they have elsewhere."""

import math
import os
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET

from stream_rater.contract.events import to_json
from stream_rater.contract.seeds import MOST_SEED_BYTES, RESET, PlayerReset
from stream_rater.library import answers, messages
from stream_rater.library.rater import Rater
from stream_rater.library.results import InvalidRound, RefusedLine, SeedResult
from stream_rater.replay.files import read_lines
from stream_rater.rounds import seed_records
from stream_rater.rounds.seed_records import Scale, scale_of
from stream_rater.tables.ratings import RatingsTable, TableSeeds, source_of_file, source_of_object
from stream_rater.tables.reading import Reading

GivenScale = str | tuple[float, float]  # A name, or a newcomer's mu and sigma on the scale.


def seed(
    rater: Rater, table: Any, given_scale: GivenScale, sigma: float | None,
    at: datetime | str | None, reading: Reading, source: str, *, skip_invalid: bool,
) -> SeedResult:  # fmt: skip
    """Seed a ladder by a table. Raises as `Ladder.seed` does."""
    scale = _scale(rater, given_scale)
    ratings = RatingsTable(_source(table, reading), reading, sigma)
    if rater.rating.takes_sigma:
        ratings.check_sigma(scale.sigma)
    seeds = TableSeeds(ratings, scale, rater.rating)
    if seeds.rejected and not skip_invalid:
        line, invalid = seeds.rejections[0]
        more = f" (and {seeds.rejected - 1:,} more)" if seeds.rejected > 1 else ""
        raise InvalidRound(
            invalid.code,
            f"{ratings.name}, {ratings.unit} {line}: {invalid}{more}: nothing was seeded; "
            "skip_invalid=True leaves such rows out",
        )
    head = rater.ladder, _time(rater, at), source or ratings.name
    sent = seed_records.seed_messages(*head, seeds.players(), MOST_SEED_BYTES)
    begun = rater.seed(message.value for message in sent)
    refusals = (RefusedLine(line, why.code, str(why)) for line, why in seeds.rejections)
    return SeedResult(
        rater.ladder, seeds.count, begun, seeds.cut, seeds.rejected, tuple(refusals)
    )  # fmt: skip


def reset(
    rater: Rater, player: str, sigma: float, mu: float | None, at: datetime | str | None
) -> None:
    """Reset a player. Raises as `Ladder.reset` does."""
    given = UNSET if mu is None else _finite("mu", mu)
    event = PlayerReset(
        event_type=RESET, ladder=rater.ladder, round_id=f"reset-{rater.end}",
        at=_time(rater, at), player=player, sigma=_finite("sigma", sigma), mu=given,
    )  # fmt: skip
    rater.seed([to_json(event)])


def _finite(name: str, value: float) -> float:
    if not math.isfinite(found := messages.number("bad-seed", name, value)):
        raise InvalidRound("bad-seed", f"{name}: {found} is no finite number")
    return found


def _scale(rater: Rater, given: GivenScale) -> Scale:
    if not isinstance(given, str):
        with suppress(TypeError, ValueError):
            mu, sigma = given
            return scale_of(f"{float(mu)!r},{float(sigma)!r}", rater.rating)
    return scale_of(str(given), rater.rating)


def _source(table: Any, reading: Reading) -> Any:
    if not isinstance(table, str | os.PathLike):
        return source_of_object(table)
    path = Path(table)
    return source_of_file(path, partial(read_lines, path), reading)


def _time(rater: Rater, given: datetime | str | None) -> str:
    if given is None:
        return answers.text_of(rater.work.latest_s)
    return messages.time_of(given, "at")
