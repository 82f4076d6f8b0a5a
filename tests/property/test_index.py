"""The index equals its definition, `entries`, after events, erasures, sweeps, views, restarts."""

import random
from pathlib import Path

import msgspec
import pytest

from stream_rater.config.ladders import Ladders
from stream_rater.config.views import NOT_LISTED
from stream_rater.index import entries, tables
from tests.builders.indexes import KEPT, LADDER, Index
from tests.contract import test_views_in_index as viewing


class Model:
    """A ladder's index as `entries` makes it."""

    def __init__(self, ladders: Ladders, clock: viewing.Clock) -> None:
        self.index, self._clock = entries.LadderIndex({}, entries.LadderSummary()), clock
        self.changes: dict[str, dict[int, entries.IndexedChange]] = {}
        self.place(ladders)

    def place(self, ladders: Ladders) -> None:
        """Place all players by other views, or by the first ones."""
        self.views = ladders.views(LADDER)
        players = {
            name: entries.replaced(name, each, self.views)
            for name, each in self.index.players.items()
        }
        first = (self._clock.now_s, b"") if self.views.depend_on_time else entries.NOT_SWEPT
        self.index = self.index._replace(players=players, swept=first)

    def apply(self, events: list[entries.IndexEvent]) -> None:
        self.index = entries.apply_events(self.index, events, self.views)
        for event in events:
            changes = self.changes.setdefault(event.player, {})
            if isinstance(event, entries.PlayerErased):
                changes.clear()
            else:
                changes[event.offset] = entries.change_of(event)

    def history(self, player: str) -> entries.History:
        """The newest changes, in order."""
        kept = sorted(self.changes.get(player, {}).items())[-KEPT:]
        return tuple(change for _, change in kept)

    def sweep(self) -> None:
        due = [
            (each.until_s, name.encode())
            for name, each in self.index.listed().items()
            if NOT_LISTED < each.until_s <= self._clock.now_s
        ]
        if due:
            self.index = self.index._replace(swept=max(due))


@pytest.mark.parametrize("seed", range(12))
def test_the_index_equals_its_definition(tmp_path: Path, seed: int) -> None:
    """Players, lists with their ranks, histories, summary and histogram are equal."""
    rng, clock = random.Random(seed), viewing.Clock()
    both = (viewing.BOTH, viewing.a_ladder(viewing.LISTING), viewing.a_ladder())
    ladders, offset = both[seed % 3], 0
    index, model = Index(tmp_path / "index", ladders, clock), None
    for _ in range(40):
        clock.now_s += rng.choice([60.0, 86_400.0, 9 * 86_400.0])
        events: list[entries.IndexEvent] = []
        for name in rng.choices(viewing.NAMES, k=rng.choice([1, 3, 9])):
            offset += rng.choice([0, 1, 1])
            if rng.random() < 0.05 and model is not None:
                events.append(entries.PlayerErased(LADDER, name))
                continue
            at = max(0, offset - rng.choice([0, 0, 0, 5]))
            rating, rounds = rng.choice([-0.5, 1190.0, 1230.0, 1500.0]), rng.choice([0, 3, 9])
            events.append(
                viewing.played(name, at, rating, at_s=viewing.START_S + at * 9_000, rounds=rounds)
            )
        model = model or Model(ladders, clock)
        index.apply(events)
        model.apply(events)
        if rng.random() < 0.5:
            while index.writer.sweep():
                pass
            model.sweep()
        if rng.random() < 0.3:
            index.close(killed=rng.random() < 0.5)
            if rng.random() < 0.3:
                ladders = rng.choice(both)
                if ladders.views(LADDER).id != model.views.id:
                    model.place(ladders)
            index = Index(tmp_path / "index", ladders, clock)
        assert_equal(index, model)
    index.close()


def assert_equal(index: Index, of_model: Model) -> None:
    model = of_model.index
    rows = index.contents()
    decode = msgspec.msgpack.Decoder(tables.StoredPlayer).decode
    assert {key[4:].decode(): decode(row).player for key, row in rows["players"]} == model.players
    listed = sorted((-e.rating, name.encode()) for name, e in model.listed().items())
    ranks = [(-tables.rating_of(key[4:12]), key[12:]) for key, _ in rows["ranks"]]
    assert ranks == listed
    dues = {key[12:].decode(): tables.value_of(key[:8]) for key, _ in rows["dues"]}
    assert dues == {n: e.until_s for n, e in model.listed().items() if e.until_s < float("inf")}
    view = index.ask("ladder", LADDER)
    assert (view.summary, view.listed) == (model.summary, len(listed))
    for name in viewing.NAMES:
        assert index.ask("history", LADDER, name) == of_model.history(name)
