"""Rounds for tests: as events, as bytes, and as columns."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.config.ladders import Ladders, any_ladder
from stream_rater.contract.record import Headers, Record
from stream_rater.rating.elo_mmr import belief
from stream_rater.rating.model import Beliefs, Evidence, Table, Wave
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds.batch import OneRound, RoundBatch
from stream_rater.rounds.decoder import RoundDecoder

MSGPACK_HEADERS = [("content-type", b"application/msgpack")]


def event(*standings: Any, **fields: Any) -> dict[str, Any]:
    """A `round-completed` in which ann beat bob, with standings or fields as given."""
    return {
        "round_id": "r-1",
        "ladder": "ranked-eu",
        "completed_at": "2026-11-20T20:15:05Z",
        "standings": list(standings)
        or [{"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}],
        **fields,
    }


def as_json(*standings: Any, **fields: Any) -> bytes:
    return msgspec.json.encode(event(*standings, **fields))


def as_msgpack(*standings: Any, **fields: Any) -> bytes:
    return msgspec.msgpack.encode(event(*standings, **fields))


def read(config: RatingConfig, *standings: Any, **fields: Any) -> OneRound:
    """That event as the service reads it."""
    return Reader(any_ladder(config)).read(as_json(*standings, **fields))


def wave_of(
    rounds: Sequence[OneRound], header: Table, rows: Ints | None = None,
    config: RatingConfig | None = None,
) -> Wave:  # fmt: skip
    """The wave of these rounds. The parameters are those of `RoundBatch.wave`."""
    return RoundBatch.concat([each.batch for each in rounds]).wave(header, rows, config)


class Reader:
    """Reads rounds for these ladders, a message at a time."""

    def __init__(self, ladders: Ladders) -> None:
        self.decoder = RoundDecoder(ladders)

    def read(
        self, data: bytes | None, headers: Headers = (), received_s: float = math.inf,
        offset: int = 2**62,
    ) -> OneRound:  # fmt: skip
        """The round in a message; raises Invalid. By default its ladder's last rules hold."""
        return self.decoder.read(Record(0, offset, data, headers, received_s=received_s))


def ranked(places: Sequence[int], names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Standings by place; place 0 did not finish."""
    names = names or [f"p{i}" for i in range(len(places))]
    return [
        {"player": name, "rank": place} if place else {"player": name, "dnf": True}
        for name, place in zip(names, places, strict=True)
    ]


def day(number: int) -> str:
    """A time so many days after the first of 2026."""
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)).isoformat()


RATED = np.dtype([("mu", "<f8"), ("sigma", "<f8"), ("rounds", "<i8"), ("time", "<i8")])
"""The fields of a belief that stage 1 reads."""


def wave_among(rounds: Sequence[OneRound], mu: Floats, sigma: Floats, played: int = 5) -> Wave:
    """A wave whose players, in the order of the rounds' standings, have these ratings."""
    priors = np.zeros(len(mu), RATED)
    priors["mu"], priors["sigma"], priors["rounds"] = mu, sigma, played
    priors["time"] = np.concatenate([[each.time] * len(each.players) for each in rounds])
    return wave_of(rounds, priors)


def update_all(beliefs: Beliefs, evidence: Evidence, rho: float) -> None:
    """Stage 2 of one round for each of `beliefs`, in place. No factor is dropped."""
    rows = np.arange(len(beliefs))
    belief.update(
        beliefs.header, beliefs.factors, rows, evidence, np.full(len(rows), rho), rows * 0
    )


def logistic_weight(beliefs: Beliefs) -> Floats:
    """The weights w = 2 a o / C^2 of the first belief's factors (p, a, r), with o = scale * r."""
    _p, a, r = beliefs.factors[0, : beliefs.header["count"][0]].T
    weights: Floats = 2.0 * a * r * beliefs.header["scale"][0] * 3.0 / math.pi**2
    return weights
