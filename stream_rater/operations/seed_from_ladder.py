"""`stream-rater seed --from-ladder`: who has not played a ladder yet begins from another one.

The beliefs are read from the store, each as it is at some moment during the command. Players who
have a belief on the target already are left out, so a repeated command sends only what is new.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from stream_rater import places
from stream_rater.columns.arrays import Floats, Hashes, Ints
from stream_rater.columns.siphash import Key
from stream_rater.columns.strings import StringColumn, hash_each
from stream_rater.config.errors import BadConfiguration, Failed, named_failures
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Player
from stream_rater.contract.seeds import SeededPlayer
from stream_rater.operations.seed import Example, Head, Plan, check, most_bytes_of, terms_of
from stream_rater.pipeline.corrections.edits_in_force import EditsOfLadders
from stream_rater.places import checks
from stream_rater.places.port import Place
from stream_rater.rating import record
from stream_rater.rating.model import Table
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.seasons import seen
from stream_rater.rating.stages import RatingRule, rule_of
from stream_rater.rounds.seed_messages import Taken, brought, seeded_players
from stream_rater.runtime.progress import counted, track_batches, unknown_ladder
from stream_rater.tables.seeds import EXAMPLES

AT_ONCE = 100_000
"""The number of players who are Python objects at the same time."""

ORDER = Key(np.uint64(0), np.uint64(0))
"""The key of the hashes by which the players are in order. It is no secret: nothing is looked up by
these hashes."""


def of_ladder(source: str, taken: Taken, head: Head, settings: Settings) -> Plan:
    """The plan for the players of the ladder `source`. Raises BadConfiguration if the ladders file
    is not that of the workers, and Failed if there are no such players."""
    ladders = ladders_of_settings(settings)
    if source == head.ladder:
        raise BadConfiguration(f"--from-ladder {source}: it is the target, too")
    terms, end = terms_of(ladders, head.ladder, settings)
    rating, own = terms.rating, terms_of(ladders, source, settings)[0].rating
    with named_failures(), places.opened(settings) as place:
        rated = place.ladder_log().ladders
        if source not in rated:
            raise Failed(unknown_ladder(source, rated))
        ladder_log = checks.agreed(place, ladders, "nothing was sent", only=source)
        started = EditsOfLadders().of(source, ladder_log.corrections).last.started
        names, mu, sigma = _read(place, rule_of(own, started), source, head.ladder)
    to_mu, to_sigma, cut = brought(own, rating, mu, sigma, taken)

    def players() -> Iterator[SeededPlayer]:
        for first in range(0, len(names), AT_ONCE):
            rows = np.arange(first, min(first + AT_ONCE, len(names)))
            yield from seeded_players(rating, names.take(rows).texts(), to_mu[rows], to_sigma[rows])

    head = head._replace(source=head.source or f"ladder {source}")
    most = min(taken.most_sigma, rating.initial_sigma)
    remarks = [f"the sigma of {counted(cut, 'player')} was cut to {most:g}"] if cut else []
    examples = _examples(names, (mu, sigma, to_mu, to_sigma), rating)
    plan = Plan(head, most_bytes_of(ladders), len(names), examples, players, remarks)
    check(plan, ladders, end)
    return plan


def _read(
    place: Place, rule: RatingRule, source: str, target: str
) -> tuple[StringColumn, Floats, Floats]:
    """The names, mu and sigma of the players of the source who have no belief on the target, in an
    order that depends on the names alone. Raises Failed if there are none."""
    names, mu, sigma, known = list[StringColumn](), list[Floats](), list[Floats](), list[Hashes]()
    for batch in track_batches(place.beliefs(), "beliefs"):
        found, header = _played(batch, source)
        names.append(found)
        its_mu, its_sigma = seen(rule, header)
        mu.append(its_mu)
        sigma.append(its_sigma)
        known.append(_played(batch, target)[0].hashes)
    every = StringColumn.concat([StringColumn.of([]), *names])
    new: Ints = np.flatnonzero(~np.isin(every.hashes, np.concatenate([every.hashes[:0], *known])))
    if not len(new):
        others = f": all {len(every):,} have a rating on {target!r}" if len(every) else ""
        raise Failed(f"ladder {source!r} has no player who can begin there{others}: nothing to do")
    order = hash_each(every.data, every.starts[new], every.ends[new], ORDER)
    rows = new[np.argsort(order, kind="stable")]
    return every.take(rows), np.concatenate(mu)[rows], np.concatenate(sigma)[rows]


def _played(batch: list[tuple[Player, bytes]], ladder: str) -> tuple[StringColumn, Table]:
    """The names and the headers of the players of a ladder in a batch who have played."""
    found = [(player, data) for (own, player), data in batch if own == ladder]
    header = record.read_headers(b"".join(data[: record.HEADER_SIZE] for _, data in found))
    rows = np.flatnonzero(header["rounds"] > 0)
    return StringColumn.of([found[row][0] for row in rows.tolist()]), header[rows]


def _examples(
    names: StringColumn, columns: Sequence[Floats], rating: RatingConfig
) -> list[Example]:
    """Some players, from the lowest rating to the highest. `columns`: the mu and sigma of all on
    the source, and on the target."""
    order = np.argsort(columns[2], kind="stable")
    places = np.linspace(0, len(order) - 1, min(EXAMPLES, len(order))).round().astype(np.int64)
    rows, rule = order[places], rule_of(rating)
    numbers = np.column_stack([each[rows] for each in columns]).tolist()
    found = []
    for player, (given_mu, given_sigma, mu, sigma) in zip(
        names.take(rows).texts(), numbers, strict=True
    ):
        rating_shown = float(rule.rating(mu, sigma))
        found.append(Example(player, given_mu, given_sigma, mu, sigma, rating_shown, 1))
    return found
