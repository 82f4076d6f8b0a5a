"""Results of games are kept as they come, found again, and bounded in time."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_rater.evaluation.contestants import OwnSystem
from stream_rater.evaluation.deadline import Bounded, OutOfTime
from stream_rater.evaluation.game import Game, games_of
from stream_rater.evaluation.research import games, games_tables, saved
from stream_rater.evaluation.research.games import Bounds
from stream_rater.evaluation.research.saved import Saved, Unfinished, digest_of
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run

SEASON = list(season(Kind(players=20, rounds=40, per_round=6), 3))
BOUNDS = Bounds(10)


def game(rounds: list[Session] = SEASON) -> Game:
    (found,) = games_of("made up", rounds)
    return found


@dataclass(frozen=True)
class Counting(OwnSystem):
    """A system that counts how often it plays."""

    plays: list[int] = None  # type: ignore[assignment]

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        self.plays.append(1)
        return super().play(sessions, config)


def compared(systems: list[Any], folder: Path | None, bounds: Bounds = BOUNDS) -> games.Result:
    kept = Saved(folder) if folder else None
    (found,) = games.compare([game()], systems, bounds, None, lambda _: None, kept)
    return found


def test_a_second_run_finds_what_the_first_one_kept(tmp_path: Path) -> None:
    """To the last bit, and nothing is played again."""
    plays = list[int]()
    systems = [Counting("glicko", plays=plays), Counting("bar", plays=plays)]
    first = compared(systems, tmp_path)
    assert plays and len(list(tmp_path.iterdir())) == 2
    plays.clear()
    assert compared(systems, tmp_path) == first and not plays
    assert compared(systems, None).rounds == first.rounds and plays


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    """Each result is there as soon as it is known: the second system's is not lost with the
    third's."""

    class Broken(Exception):
        pass

    class Breaking(OwnSystem):
        def play(self, sessions: Iterable[Session], config: Any) -> Run:
            raise Broken

    plays = list[int]()
    systems = [Counting("glicko", plays=plays), Counting("bar", plays=plays), Breaking("elo-mmr")]
    with pytest.raises(Broken):
        compared(systems, tmp_path)
    plays.clear()
    compared([*systems[:2], OwnSystem("elo-mmr")], tmp_path)
    assert not plays


def changed(**rounds: Any) -> Game:
    """The game with another last round."""
    last = SEASON[-1]
    return game([*SEASON[:-1], replace(last, rows=rounds.get("rows", last.rows))])


@pytest.mark.parametrize(
    ("other", "bounds", "system"),
    [
        (changed(rows=SEASON[-1].rows[::-1].copy()), BOUNDS, OwnSystem("glicko")),
        (replace(game(), boundary=5), BOUNDS, OwnSystem("glicko")),
        (game(), Bounds(11), OwnSystem("glicko")),
        (game(), Bounds(10, 9.0), OwnSystem("glicko")),
        (game(), BOUNDS, OwnSystem("bar")),
    ],
    ids=["rounds", "boundary", "trials", "seconds", "system"],
)
def test_whatever_decides_a_result_is_in_its_key(
    tmp_path: Path, other: Game, bounds: Bounds, system: OwnSystem
) -> None:
    """One of them is another, and the result is not used."""
    kept = Saved(tmp_path)
    outcome = Unfinished("glicko", 1.0)
    kept.store(game(), OwnSystem("glicko"), BOUNDS, outcome)
    assert kept.load(game(), OwnSystem("glicko"), BOUNDS) == outcome
    assert kept.load(other, system, bounds) is None


def test_other_code_has_other_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other kernels, and other modules of the evaluation."""
    kept = Saved(tmp_path)
    kept.store(game(), OwnSystem("glicko"), BOUNDS, Unfinished("glicko", 1.0))
    for name, value in (("KERNEL_VERSION", 10**6), ("_code", lambda: "another")):
        with monkeypatch.context() as patched:
            patched.setattr(saved, name, value)
            assert kept.load(game(), OwnSystem("glicko"), BOUNDS) is None
    assert kept.load(game(), OwnSystem("glicko"), BOUNDS) is not None


def test_every_column_of_the_rounds_is_in_the_digest() -> None:
    """One number in one of them is another."""
    digests, base = {digest_of(game())}, SEASON[-1]
    names = [
        name for name in base.rounds.__struct_fields__
        if isinstance(getattr(base.rounds, name), np.ndarray) and getattr(base.rounds, name).size
    ]  # fmt: skip
    for name in names:
        column = getattr(base.rounds, name).copy()
        column[-1] = column[-1] == 0
        rounds = type(base.rounds)(*[
            column if each == name else getattr(base.rounds, each)
            for each in base.rounds.__struct_fields__
        ])  # fmt: skip
        digests.add(digest_of(game([*SEASON[:-1], replace(base, rounds=rounds)])))
    assert len(digests) == 1 + len(names) > 4


def test_a_file_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    """It is done again, and written again only if it is gone."""
    kept = Saved(tmp_path)
    kept.store(game(), OwnSystem("glicko"), BOUNDS, Unfinished("glicko", 1.0))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert kept.load(game(), OwnSystem("glicko"), BOUNDS) is None
    Saved(tmp_path / "nowhere").store(game(), OwnSystem("glicko"), BOUNDS, Unfinished("a", 1.0))
    assert not (tmp_path / "nowhere").exists()


def test_a_system_that_takes_too_long_is_named_and_left_out(tmp_path: Path) -> None:
    """The others are compared all the same. It is tried again with more time alone."""
    systems = [OwnSystem("glicko"), OwnSystem("bar")]
    none = compared(systems, tmp_path, Bounds(10, 0.0))
    assert [each.system for each in none.not_finished] == ["glicko", "bar"]
    assert none.systems == [] and none.ours is None
    (said, _) = games_tables._not_finished([none])
    assert said == (
        "made up: glicko did not finish within 0 s, and is left out of all comparisons."
    )
    assert any(said in line for line in games_tables.page([none], []))
    found = compared(systems, tmp_path, Bounds(10, 600.0))
    assert found.not_finished == [] and len(found.systems) == 2


def test_time_is_looked_at_before_each_session() -> None:
    """The clock is given: sessions are rated until it says that time is over."""
    ticks = iter(range(100))
    bounded = Bounded(OwnSystem("glicko"), 3.5, lambda: float(next(ticks)))
    seen = list[Session]()

    class Watched(OwnSystem):
        def play(self, sessions: Iterable[Session], config: Any) -> Run:
            seen.extend(sessions)
            raise AssertionError("out of time before")

    bounded.system = Watched("glicko")
    with pytest.raises(OutOfTime, match=r"^glicko did not finish within 3\.5 s$"):
        bounded.play(SEASON, None)
    assert len(seen) == 3 and next(ticks) == 5
