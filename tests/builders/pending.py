"""Rounds as the estimator holds them."""

from collections.abc import Sequence

from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.contract.record import Record
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.rounds.decoder import RoundDecoder
from tests.rounds import as_json, ranked

SHARDS = 3


def pending_of(
    sizes: Sequence[int], *, offsets: Sequence[int] | None = None, ladders: Sequence[str] = (),
    known: Ladders = ANY_LADDER, round_decoder: RoundDecoder | None = None,
) -> PendingRounds:  # fmt: skip
    """Rounds of these sizes, by default at offsets 10, 20, ... No player is in two of them."""
    records, first = [], 0
    for i, size in enumerate(sizes):
        players = [f"p{k}" for k in range(first, first + size)]
        ladder = ladders[i] if i < len(ladders) else "ladder"
        data = as_json(*ranked(range(1, size + 1), players), round_id=f"r{i}", ladder=ladder)
        records.append(Record(0, offsets[i] if offsets else 10 * i + 10, data, received_s=4e9))
        first += size
    rounds, rejections = (round_decoder or RoundDecoder(known)).decode(records)
    assert rejections == [None] * len(records)
    return estimation.pending_rounds(records, rounds, SHARDS)
