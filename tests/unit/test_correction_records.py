"""Corrections, seeds and resets that have several mistakes, which are found in a fixed order."""

from typing import Any

import msgspec
import pytest

from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import DEFAULT_RATING, Ladder, Ladders, Limits
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import SEEDS
from stream_rater.rounds.correction_records import decode_correction, decode_seed
from stream_rater.rounds.validation import Invalid

LIMITS = Limits(max_bytes=2000)
LADDERS = Ladders(
    ladders={
        "taking": Ladder(rating=DEFAULT_RATING, limits=LIMITS),
        "refusing": Ladder(rating=DEFAULT_RATING, limits=Limits(corrections="refused")),
    },
    limits=LIMITS,
)
PARTITIONS, ELSEWHERE = 4, 0  # Neither ladder is at home in partition 0.
LONG = "x" * 129
NOW_S = 1.8e9

Steps = list[tuple[str, str, dict[str, Any]]]
"""The code and the beginning of the text of each mistake, and the fields that cure it."""

NO_ID = ("bad-id", "ladder: empty", {"ladder": "unknown"})
UNKNOWN = ("unknown-ladder", "ladder 'unknown'", {"ladder": "refusing"})
REFUSED = "ladder 'refusing' takes no corrections"
MISPLACED = "wrong-partition", "ladder 'refusing' has its rounds in partition 2, this correction"

CASES: dict[str, tuple[dict[str, Any], Steps]] = {
    "player-merged": (
        {"ladder": "", "player": "", "into": LONG, "reason": LONG * 20},
        [
            ("too-large", "", {"reason": ""}), NO_ID,
            ("bad-id", "player: empty", {"player": "ann"}),
            ("bad-id", "into: over", {"into": "ann"}), UNKNOWN,
            ("bad-merge", "player 'ann'", {"into": "bob"}), (*MISPLACED, {}),
            ("corrections-refused", REFUSED + ":", {"ladder": "taking"}),
        ],
    ),
    "round-voided": (
        {"ladder": "", "round_id": "", "reason": 7},
        [
            ("malformed", "Expected `str`", {"reason": ""}), NO_ID,
            ("bad-id", "round_id: empty", {"round_id": "r"}), UNKNOWN, (*MISPLACED, {}),
            ("corrections-refused", "", {"ladder": "taking"}),
        ],
    ),
    "season-started": (
        {"ladder": "", "season": 0, "keep": 2.0, "sigma": -1.0},
        [
            NO_ID, UNKNOWN, ("bad-season", "season", {"season": 1}),
            ("bad-season", "keep", {"keep": 1.0}), ("bad-season", "sigma", {"sigma": 0.0}),
            (*MISPLACED, {}), ("corrections-refused", "", {"ladder": "taking"}),
        ],
    ),
    "players-seeded": (
        {"ladder": "", "round_id": "", "at": "", "players": [], "source": LONG * 20},
        [
            ("too-large", "", {"source": ""}), ("bad-id", "round_id: empty", {"round_id": "s"}),
            NO_ID, UNKNOWN, ("corrections-refused", REFUSED + ", seeds and", {"ladder": "taking"}),
            ("bad-time", "at: ", {"at": "2099-01-01T00:00:00Z"}),
            ("bad-time", "at: over 86400 s ahead", {"at": "2026-11-20T20:15:05Z"}),
            ("bad-seed", "players: 0", {"players": [{"player": "", "mu": 1e9}]}),
            ("bad-id", "players[0].player", {"players": [{"player": "ann", "mu": 1e9}]}),
            ("bad-seed", "players[0].mu", {"players": [{"player": "ann", "mu": 1500}]}),
            ("wrong-partition", "ladder 'taking' has its rounds in partition 3, this players", {}),
        ],
    ),
    "player-reset": (
        {"ladder": "", "round_id": "", "at": "", "player": "", "sigma": 0, "mu": 1e9},
        [
            ("bad-id", "round_id: empty", {"round_id": "s"}), NO_ID, UNKNOWN,
            ("corrections-refused", "", {"ladder": "taking"}),
            ("bad-time", "at: ", {"at": "1899-01-01T00:00:00Z"}),
            ("bad-time", "at: before", {"at": "2026-11-20T20:15:05Z"}),
            ("bad-id", "player: empty", {"player": "ann"}), ("bad-seed", "mu", {"mu": 1500.0}),
            ("bad-seed", "sigma", {"sigma": 99.0}),
            ("wrong-partition", "ladder 'taking' has its rounds in partition 3, this player-", {}),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_a_record_is_rejected_by_the_first_check_that_it_fails(kind: str) -> None:
    """Each mistake is found once those before it are cured; then the record is accepted."""
    fields, steps = CASES[kind]
    decode: Any = decode_seed if kind in SEEDS else decode_correction
    is_home = False

    def record() -> Record:
        partition = partition_of(fields["ladder"], PARTITIONS) if is_home else ELSEWHERE
        value, headers = msgspec.json.encode(fields), ((EVENT_TYPE, kind.encode()),)
        return Record(partition, 0, value, headers, received_s=NOW_S)

    for code, text, cure in steps:
        with pytest.raises(Invalid) as found:
            decode(record(), LADDERS, PARTITIONS)
        assert (found.value.code, str(found.value)[: len(text)]) == (code, text)
        if code not in ("too-large", "malformed"):
            assert found.value.ladder == fields["ladder"]
            assert found.value.round_id == fields.get("round_id", "")
        fields, is_home = fields | cure, is_home or code == "wrong-partition"
    assert decode(record(), LADDERS, PARTITIONS).ladder == "taking"
