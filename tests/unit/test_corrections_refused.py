"""Ladders that take no corrections, from the first record on or from an offset on."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from stream_rater.adapters.local_driver import estimator_worker
from stream_rater.adapters.memory import Log, Store
from stream_rater.cli import app
from stream_rater.config.ladders import DEFAULT_RATING, Ladder, Ladders, Limits
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.ladder_history import encode_histories
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.ledger import verdicts_of_log
from tests.builders.commands import as_file
from tests.builders.lines import Line, a_correction, a_record, a_round
from tests.builders.memory_places import Sent, taking
from tests.unit.test_ban_waves import Actor

CODE = "corrections-refused"


def ladders_of(*changes: tuple[int, str], first: str = "accepted") -> Ladders:
    """One ladder, what it does with corrections, and from which offset on it does otherwise."""
    file = {
        "rating": msgspec.to_builtins(DEFAULT_RATING),
        "limits": {"corrections": first},
        "changes": [
            {"from_offset": offset, "limits": {"corrections": word}} for offset, word in changes
        ],
    }
    return msgspec.convert({"ladders": {"l": file}}, Ladders)


LINES = [
    a_round(0), a_round(1), a_correction("round-voided", round_id="r0", batched=True),
    a_correction("round-voided", round_id="r1", batched=True), a_correction("corrections-applied"),
    a_correction("round-voided", round_id="r1"), a_correction("season-started", season=1),
    a_correction("round-voided", round_id="nowhere"), a_correction("corrections-applied"),
]  # fmt: skip


def verdicts(ladders: Ladders, lines: list[Line] = LINES) -> dict[int, str]:
    """The codes of a file's refused corrections, by line."""
    file = [json.dumps(each).encode() for each in lines]
    found = verdicts_of_log(lambda: records_of(file), ladders, 100)
    return {place: each.code for (_, place), each in found.rejections.items()}


def test_the_offset_of_a_correction_decides() -> None:
    """The next accepted one applies deferred ones, however many are refused in between."""
    assert verdicts(ladders_of()) == {5: "already-voided", 7: "unknown-round"}
    assert verdicts(ladders_of(first="refused")) == dict.fromkeys(range(2, 9), CODE)
    assert verdicts(ladders_of((3, "refused"))) == dict.fromkeys(range(3, 9), CODE)
    assert verdicts(ladders_of((3, "refused"), (5, "accepted"))) == {
        3: CODE, 4: CODE, 7: "unknown-round"
    }  # fmt: skip


def test_a_verdict_names_the_ladder_and_the_round() -> None:
    """If the correction names no round, the verdict names none, either."""
    lines = [
        a_round(0), a_correction("round-voided", round_id="nowhere"),
        a_correction("player-removed", player="nobody"),
    ]  # fmt: skip
    file = [json.dumps(each).encode() for each in lines]
    found = verdicts_of_log(lambda: records_of(file), ladders_of(), 100).rejections
    named = {place: (each.code, each.ladder, each.round_id) for (_, place), each in found.items()}
    assert named == {1: ("unknown-round", "l", "nowhere"), 2: ("unknown-player", "l", "")}


def test_a_ladder_that_takes_them_has_the_fingerprint_of_older_releases() -> None:
    """Workers of a release that knows no such limit agree."""
    other, refused = Limits(max_entries=9, unknown_fields="reject"), Limits(corrections="refused")
    ladders = Ladders(
        ladders={
            "*": Ladder(rating=DEFAULT_RATING),
            "l": Ladder(rating=DEFAULT_RATING, limits=other),
            "m": Ladder(rating=DEFAULT_RATING, limits=refused),
        }
    )
    assert ladders.history("any") == ("0:f37007ecb9cdf1d2",)
    assert ladders.history("l") == ("0:8cea9764da5846dc",)
    assert ladders.history("m") not in (ladders.history("any"), ladders.history("l"))


def worked(ladders: Ladders, log: Log) -> Log:
    """An estimator reads the log."""
    driver = estimator_worker(log, Store())
    log.estimators.assign([driver])
    actor = Actor(driver, Estimator(ladders, 1, 1, commit_every_s=0.0).run())
    for _ in range(800):
        actor.advance()
    return log


def log_of(lines: list[Line]) -> Log:
    log = Log(1, 1)
    for line in lines:
        record = a_record(0, line)
        log.submit(0, record.value or b"", record.headers, 4e9)
    return log


def test_the_estimator_comes_to_the_same_verdicts() -> None:
    """Each refused correction is rejected once and is not recorded."""
    for ladders in (
        ladders_of(), ladders_of(first="refused"), ladders_of((3, "refused")),
        ladders_of((3, "refused"), (5, "accepted")),
    ):  # fmt: skip
        # Corrections and nothing to rate: no updater is needed.
        lines = [*LINES[:1], *LINES[2:]]
        log = worked(ladders, log_of(lines))
        found = {each.record.offset: each.code for each in log.rejected}
        assert found == verdicts(ladders, lines)
        assert len(log.rejected) == len(found)
        assert log.estimators.committed == {0: len(lines)}
        recorded = [each.offset for some in log.read().corrections.values() for each in some]
        assert not set(recorded) & {offset for offset, code in found.items() if code == CODE}


def test_a_worker_with_another_file_refuses_nothing() -> None:
    """The file that all others have takes corrections: what this one says does not count."""
    log = log_of([a_round(0), a_correction("round-voided", round_id="r0"), a_round(1)])
    log.write(encode_histories("noted", {"l": ladders_of((1, "accepted")).history("l")}))
    ours = ladders_of((1, "refused"))
    assert ours.history("l")[0] == ladders_of().history("l")[0]
    worked(ours, log)
    assert log.rejected == []
    assert log.estimators.committed == {0: 1}


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Sent:
    return taking(monkeypatch, 1)


def run(tmp_path: Path, ladders: Ladders, *words: str) -> Result:
    file = tmp_path / "ladders.json"
    file.write_bytes(msgspec.json.encode(ladders))
    return CliRunner().invoke(app.main, words, env={"STREAM_RATER_LADDERS": str(file)})


def test_correct_says_at_once_that_a_ladder_takes_none(kafka: Sent, tmp_path: Path) -> None:
    """In one line, with exit code 2. A change that the log has not reached does not count."""
    for ladders in (ladders_of(first="refused"), ladders_of((7, "refused"))):
        done = run(tmp_path, ladders, "correct", "void", "l", "r0")
        assert done.exit_code == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("stream-rater: corrections-refused: ladder 'l' takes no corrections")
        assert 'corrections = "accepted" from an offset after 7 on' in line
    assert kafka.sent == []
    for ladders in (ladders_of((8, "refused")), ladders_of((7, "accepted"), first="refused")):
        assert run(tmp_path, ladders, "correct", "void", "l", "r0").exit_code == 0
    assert kafka.kinds == ["round-voided"] * 2


def test_submit_leaves_out_what_a_ladder_does_not_take(kafka: Sent, tmp_path: Path) -> None:
    """The error names the line and its code, and the other lines are sent."""
    rounds = as_file(tmp_path / "rounds.jsonl", LINES[:3])
    done = run(tmp_path, ladders_of((7, "refused")), "submit", str(rounds))
    assert done.exit_code == 1
    assert "rounds.jsonl:3: corrections-refused: ladder 'l'" in done.stderr
    assert kafka.kinds == ["", ""]
    assert run(tmp_path, ladders_of((8, "refused")), "submit", str(rounds)).exit_code == 0
