"""The judge, on a log in memory, finds each planted fault, and nothing in production code."""

from pathlib import Path

from msgspec import to_builtins

from stream_rater.adapters.kafka.envelopes import rejection_headers
from stream_rater.contract.record import Headers
from tests.chaos.planted import FAULTS, planted
from tests.judge.judge import judged
from tests.judge.observations import End, Findings, Line, Run, Seen, write_all

from .actors import PRODUCTION
from .game import LADDERS, PARTITIONS, SHARDS
from .stage import A0, A1, A2, B0, B1, C0, Stage

W = 10  # the duplicate window
IN_MEMORY = sorted(FAULTS.keys() - {"aborted-is-committed"})  # the faults that need no broker


def test_it_finds_nothing_in_production_code(tmp_path: Path) -> None:
    """The story has everything that a fault needs."""
    found = story(tmp_path)
    assert found.clean, found.lines
    assert found.checked["changes"] > 20
    assert found.checked["rejections"] == 4 + W
    assert found.checked["corrections"] == 3
    assert found.checked["rounds whose numbers were computed"] == 7
    assert set(found.left_open) == {"verdicts that the texts leave open"}, found.left_open


def test_it_finds_each_planted_fault(tmp_path: Path) -> None:
    """The same story with a fault has a violation."""
    unseen = []
    for fault in IN_MEMORY:
        with planted(fault):
            found = story(tmp_path)
        if not found.violations:
            unseen.append(fault)
    assert unseen == []


def story(folder: Path) -> Findings:
    """Play rounds, repeated and invalid ones, seeds, corrections and a season, and judge them."""
    stage = Stage(PRODUCTION)
    stage.window = W
    stage.seed(C0)
    for weight in (1.0, 1.0, 1.0, 0.5, 2.0, 1.0):
        stage.round(A0, A1, B1, weight=weight)
    stage.round(C0, A1)
    again = stage.round(A0, B0, round_id="round-2")  # a duplicate
    stage.round(A0)  # too few
    stage.round(A1, A1)  # a player twice
    stage.correct("season-started", season=1, keep=0.5, sigma=100.0)
    stage.round(A2, A0, B0)
    stage.round(A2, B0, A1)
    stage.correct("round-voided", round_id="round-3")
    stage.correct("player-removed", player=B1)
    stage.round(A0, B1, A1)
    stage.round(B0, A2)
    last = stage.round(A0, B0, round_id="round-2")  # a duplicate, at the window's edge
    assert last == again + W
    while stage.round(A0) < last + W:  # too few
        pass
    stage.round(A0, B0, round_id="round-2")  # behind the window: another round
    stage.workers()
    with stage.patches:
        stage.finish()
    path = folder / "observed.jsonl.gz"
    write_all(path, observed(stage))
    return judged(path)


def observed(stage: Stage) -> list[Line]:
    """What a client reads from the log of a stage."""
    log = stage.log
    records = [
        Seen(
            t="rounds", p=each.partition, o=each.offset, v=text(each.value), h=texts(each.headers),
            ts=int(each.received_s * 1000.0),
        )
        for partition in log.rounds
        for each in partition
    ]  # fmt: skip
    records += [
        Seen(
            t="rejected", p=0, o=offset, v=text(each.record.value),
            h=texts(rejection_headers(each, "round-completed")),
        )
        for offset, each in enumerate(log.rejected)
    ]  # fmt: skip
    records += [
        Seen(t="changed", p=shard, o=offset, v=text(each.value), key=text(each.key))
        for shard, events in enumerate(log.changed)
        for offset, each in enumerate(events)
    ]
    run = Run(
        reader="memory", partitions=PARTITIONS, shards=SHARDS, window=stage.window,
        ladders=sorted(LADDERS.ladders),
        rated={name: to_builtins(each.rating) for name, each in LADDERS.ladders.items()},
    )  # fmt: skip
    return [run, *records, End(records=len(records))]


def text(value: bytes | None) -> str | None:
    """Bytes, as a recorder writes them."""
    return None if value is None else value.decode("latin-1")


def texts(headers: Headers) -> list[tuple[str, str | None]]:
    """Headers, as a recorder writes them."""
    return [(name, text(value)) for name, value in headers]
