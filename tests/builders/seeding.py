"""Seeds, resets and their parts for the pipeline's unit tests."""

from collections.abc import Sequence

import msgspec
import numpy as np

from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladder, Ladders
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import RESET, SEEDED
from stream_rater.pipeline.parts.schema import Part
from stream_rater.rating.stages import RatingRule
from stream_rater.rounds.correction_records import Seed, decode_seed
from tests.builders.machines import CONFIG, RULE, RoundInPart, columns_of

TIME = "2026-11-25T16:00:00Z"
LADDERS = Ladders(ladders={"a": Ladder(rating=CONFIG)})


def seeding_record(offset: int, *players: str, ladder: str = "a", **row: object) -> Record:
    """The record of a seed of these players; `row` has the values of each of them."""
    rows = [{"mu": 1700.0, "sigma": 90.0, "rounds": 5} | row | {"player": p} for p in players]
    about = {"ladder": ladder, "round_id": f"s{offset}", "at": TIME, "players": rows}
    value = msgspec.json.encode(about)
    return Record(0, offset, value, ((EVENT_TYPE, SEEDED.encode()),), received_s=4e9)


def resetting_record(offset: int, player: str, ladder: str = "a", **values: float) -> Record:
    about = {"ladder": ladder, "round_id": f"s{offset}", "at": TIME, "player": player}
    value = msgspec.json.encode(about | {"sigma": 200.0} | values)
    return Record(0, offset, value, ((EVENT_TYPE, RESET.encode()),), received_s=4e9)


def read(record: Record, ladders: Ladders = LADDERS) -> Seed:
    return decode_seed(record, ladders)


def seed_part(
    *records: tuple[int, Sequence[str]], kind: str = SEEDED, ladder: str = "a", mu: float = 1700.0,
    sigma: float = 90.0, rule: RatingRule = RULE, shards: int = 1,
) -> Part:  # fmt: skip
    """A part of the seeds or resets at these offsets, each with its players."""
    players = [player for _, names in records for player in names]
    rounds = (
        RoundInPart(offset, 0, 1000 * offset, f"r{offset}", ladder, TIME) for offset, _ in records
    )
    given = [[mu, sigma, 0.0 if kind == RESET else 5.0]] * len(players)
    return Part(
        rules=[rule], **columns_of(*rounds),
        round_index=np.repeat(np.arange(len(records)), [len(names) for _, names in records]),
        place=np.zeros(len(players), np.int32), evidence=np.array(given).reshape(-1, 3),
        names=StringColumn.of(players), shards=shards, cause=kind,
    )  # fmt: skip
