"""`stream-rater seed` and `correct reset`: give players ratings without a round."""

import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import UNSET

from stream_rater import places
from stream_rater.columns.arrays import Floats, Hashes, Ints
from stream_rater.columns.siphash import Key
from stream_rater.columns.strings import StringColumn, hash_each
from stream_rater.config.errors import BadConfiguration, Failed, named_failures
from stream_rater.config.ladders import Ladders, Terms
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import shown, to_json
from stream_rater.contract.record import Player, Record
from stream_rater.contract.seeds import MOST_SEED_BYTES, RESET, SEEDED, PlayerReset, SeededPlayer
from stream_rater.operations.corrections import AFTER_ALL, applied, voided
from stream_rater.operations.input_file import check_writable, file_failures, output
from stream_rater.operations.submit import flush, send
from stream_rater.pipeline.corrections.edits_in_force import EditsOfLadders
from stream_rater.places import checks
from stream_rater.places.port import Place
from stream_rater.rating import record, seasons
from stream_rater.rating.model import Table
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.stages import RatingRule, rule_of
from stream_rater.replay.files import DASH, name_of, read_lines, text_size
from stream_rater.rounds import seed_records, validation
from stream_rater.rounds.correction_records import decode_seed
from stream_rater.runtime import progress
from stream_rater.runtime.progress import counted
from stream_rater.tables.ratings import EXAMPLES, RatingsTable, TableSeeds, source_of_file
from stream_rater.tables.reading import Reading

LATER = (
    "players who have a round or a seed on the ladder keep their ratings; the workers count them "
    "when they rate the seeds"
)


class SeedHead(NamedTuple):
    """What all seeds of one import have in common."""

    ladder: str
    at: str  # The time from which on the ratings count, RFC 3339.
    source: str


class SeedExample(NamedTuple):
    """What becomes of one player."""

    player: str
    given_mu: float
    given_sigma: float | None
    mu: float
    sigma: float
    rating: float  # The number that is shown to players.
    rounds: int


class Plan(NamedTuple):
    """Seeds that can be sent."""

    head: SeedHead
    most_bytes: int  # The most bytes of a seed.
    total: int  # The number of their players.
    examples: Sequence[SeedExample]
    players: Callable[[], Iterable[SeededPlayer]]
    remarks: Sequence[str]  # What else there is to say, one line each.

    def messages(self) -> Iterator[seed_records.SeedMessage]:
        """Yield the seeds."""
        return seed_records.seed_messages(*self.head, self.players(), self.most_bytes)


def of_table(
    path: Path, head: SeedHead, settings: Settings, *, reading: Reading, scale: str,
    sigma: float | None, skip_invalid: bool, sends: bool,
) -> Plan:  # fmt: skip
    """The plan for a table of ratings. `scale`: the scale of its numbers. `sigma`: the sigma, on
    this scale, of players without one. `skip_invalid`: whether valid rows are taken if others are
    invalid. `sends`: whether the seeds go to the log. Raises BadConfiguration or Failed."""
    ladders = places.ladders_of(settings)
    terms, end = terms_of(ladders, head.ladder, settings if sends else None)
    rating = terms.rating
    try:
        its_scale = seed_records.scale_of(scale, rating)
    except seed_records.BadScale as error:
        raise BadConfiguration(f"--scale: {error}") from None
    head = head._replace(source=head.source or path.name.removeprefix("-"))
    with file_failures():
        table = RatingsTable(source_of_file(path, lambda: _lines(path), reading), reading, sigma)
        print(table.described(), file=sys.stderr)
        if rating.takes_sigma:
            table.check_sigma(its_scale.sigma)
        seeds = TableSeeds(table, its_scale, rating)
    for line, invalid in seeds.rejections[: progress.SHOWN_LINES]:
        print(shown(f"{name_of(path)}:{line}: {invalid.code}: {invalid}"), file=sys.stderr)
    if seeds.rejected and not skip_invalid:
        raise Failed(
            f"{name_of(path)}: {counted(seeds.rejected, 'row')} of "
            f"{seeds.rejected + seeds.count:,} invalid: nothing was sent; --skip-invalid leaves "
            "such rows out"
        )
    if not seeds.count:
        raise Failed(f"{name_of(path)}: no valid row in it")
    rule, examples = rule_of(rating), list[SeedExample]()
    for row, to in seeds.examples():
        to_sigma = to.sigma if to.sigma is not None else rating.initial_sigma
        numbers = (to.mu, to_sigma, float(rule.rating(to.mu, to_sigma)), to.rounds)
        examples.append(SeedExample(to.player, row.mu, row.sigma, *numbers))
    remarks = _remarks(seeds.cut, f"the initial {rating.initial_sigma:g}")
    return _planned(ladders, end, head, seeds.count, examples, seeds.players, remarks)


def _lines(path: Path) -> Iterator[bytes]:
    return progress.track_bytes(read_lines(path), path.name, text_size(path))


def _remarks(cut: int, most: str) -> list[str]:
    return [f"the sigma of {counted(cut, 'player')} was cut to {most}"] if cut else []


def terms_of(ladders: Ladders, ladder: str, settings: Settings | None) -> tuple[Terms, int]:
    """The ladder's terms at the end of the log, and the offset of this end; without settings, the
    last terms. Raises BadConfiguration if there is no such ladder."""
    named = ladders.ladders.get(ladder)
    end = AFTER_ALL
    if settings is not None and named is not None and named.offsets != (0,):
        with named_failures(), places.opened(settings) as place:
            end = place.end_of(ladder)
    terms = ladders.find(ladder, end)
    if terms is None:
        raise BadConfiguration(
            f"ladder {ladder!r} is not configured: name one that is, as by --ladder "
            f"{next(iter(ladders.ladders), 'NAME')}"
        )
    return terms, end


def _planned(
    ladders: Ladders, end: int, head: SeedHead, total: int, examples: Sequence[SeedExample],
    players: Callable[[], Iterable[SeededPlayer]], remarks: Sequence[str],
) -> Plan:  # fmt: skip
    """The plan. Its rows are valid already. Raises Failed if its first seed breaks a rule of the
    service: all seeds have the same ladder and time."""
    most_bytes = min(MOST_SEED_BYTES, ladders.limits.max_bytes)
    plan = Plan(head, most_bytes, total, examples, players, remarks)
    for message in plan.messages():
        _check_record(SEEDED, message.value, ladders, end)
        break
    return plan


def _check_record(kind: str, value: bytes, ladders: Ladders, end: int) -> None:
    headers = ((EVENT_TYPE, kind.encode()),)
    record = Record(0, end, value, headers, received_s=time.time())
    try:
        decode_seed(record, ladders)
    except validation.Invalid as invalid:
        raise Failed(f"{kind}: {invalid.code}: {invalid}: nothing was sent") from None


def now() -> str:
    """The present time, RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# --- sending ---


def write(plan: Plan, out: Path, *inputs: Path | None) -> str:
    """Write the seeds to a file of JSON lines; `-` is standard output. `inputs`: the files that
    they come from. Returns a line about them. Raises BadConfiguration or Failed."""
    if out != DASH:
        check_writable(out, *inputs)
    count = 0
    with file_failures(), output(None if out == DASH else out) as target:
        for message in plan.messages():
            target.write(message.value + b"\n")
            count += 1
        target.flush()
    return f"{counted(count, 'seed')} of {counted(plan.total, 'player')} written"


def send_seeds(plan: Plan, settings: Settings) -> str:
    """Send the seeds. Returns a line with their place. Raises BadConfiguration or Failed."""
    with named_failures(), places.opened(settings, writes=True) as place:
        submitter, count = place.submitter(), 0
        total = -(-plan.total // 5_000)
        for message in progress.track(plan.messages(), "seeds", total):
            submitter.correct(plan.head.ladder, SEEDED, message.value, message.round_id)
            count += 1
        flush(submitter, counted(count, "seed"), "who has a rating then keeps it")
    sent = submitter.corrections
    span = f"{sent[0][1]} to {sent[-1][1]}" if count > 1 else f"{sent[0][1]}"
    where = f"partition {sent[0][0]}, offset{'s' if count > 1 else ''} {span}"
    return (
        f"{counted(count, 'seed')} of {counted(plan.total, 'player')} sent: {where}"
        f"{place.later}; {LATER}"
    )  # fmt: skip


def take_back(plan: Plan, settings: Settings) -> str:
    """Void these seeds together. Returns a line about that. Raises BadConfiguration or Failed."""
    ladder, reason = plan.head.ladder, f"taken back: {plan.head.source}"
    voids = [voided(ladder, each.round_id, reason, batched=True) for each in plan.messages()]
    return send([*voids, applied(ladder, reason)], settings)


# --- one player ---


def reset(
    ladder: str, player: str, sigma: float, mu: float | None, at: str, source: str, round_id: str,
    settings: Settings,
) -> str:  # fmt: skip
    """Make a player's rating uncertain again. Returns a line. Raises BadConfiguration or Failed."""
    ladders = places.ladders_of(settings)
    _, end = terms_of(ladders, ladder, settings)
    given = UNSET if mu is None else mu
    event = PlayerReset(
        ladder=ladder, round_id=round_id or f"reset-{uuid.uuid4().hex}", at=at or now(),
        source=source, event_type=RESET, player=player, sigma=sigma, mu=given,
    )  # fmt: skip
    value = to_json(event)
    _check_record(RESET, value, ladders, end)
    with named_failures(), places.opened(settings, writes=True) as place:
        submitter = place.submitter(create=False)
        submitter.correct(ladder, RESET, value, event.round_id)
        submitter.flush()
    if submitter.failures:
        raise Failed(
            f"not sent: {shown(submitter.failures[0])}: run the command again with --id "
            f"{event.round_id}; what was sent twice counts once"
        )
    partition, offset = submitter.corrections[-1]
    return f"{event.round_id}: partition {partition}, offset {offset}{place.later}"


# --- the players of another ladder ----------------------------------------------------------------

# Each belief is read as it is at some moment during the command. Players who have a belief on the
# target already are left out, so a repeated command sends only what is new.

AT_ONCE = 100_000  # The number of players who are Python objects at the same time.
ORDER = Key(np.uint64(0), np.uint64(0))
"""The key of the hashes that order the players. It is no secret: they are used for no lookup."""


def of_ladder(source: str, taken: seed_records.Taken, head: SeedHead, settings: Settings) -> Plan:
    """The plan for the players of the ladder `source`. Raises BadConfiguration or Failed."""
    ladders = places.ladders_of(settings)
    if source == head.ladder:
        raise BadConfiguration(f"--from-ladder {source}: it is the target, too")
    terms, end = terms_of(ladders, head.ladder, settings)
    rating, own = terms.rating, terms_of(ladders, source, settings)[0].rating
    with named_failures(), places.opened(settings) as place:
        rated = place.ladder_log().ladders
        if source not in rated:
            raise Failed(progress.unknown_ladder(source, rated))
        ladder_log = checks.agreed(place, ladders, "nothing was sent", only=source)
        started = EditsOfLadders().of(source, ladder_log.corrections).last.started
        names, mu, sigma = _read(place, rule_of(own, started), source, head.ladder)
    to_mu, to_sigma, cut = seed_records.brought(own, rating, mu, sigma, taken)

    def players() -> Iterator[SeededPlayer]:
        for first in range(0, len(names), AT_ONCE):
            rows = np.arange(first, min(first + AT_ONCE, len(names)))
            yield from seed_records.seeded_players(
                rating, names.take(rows).texts(), to_mu[rows], to_sigma[rows]
            )

    head = head._replace(source=head.source or f"ladder {source}")
    most = min(taken.most_sigma, rating.initial_sigma)
    examples = _examples(names, (mu, sigma, to_mu, to_sigma), rating)
    remarks = _remarks(cut, f"{most:g}")
    return _planned(ladders, end, head, len(names), examples, players, remarks)


def _read(
    place: Place, rule: RatingRule, source: str, target: str
) -> tuple[StringColumn, Floats, Floats]:
    """The names, mu and sigma of those players of the source who have no belief on the target.
    Their order depends only on the names. Raises Failed if there are none."""
    names, mu, sigma, known = list[StringColumn](), list[Floats](), list[Floats](), list[Hashes]()
    for batch in progress.track_batches(place.beliefs(), "beliefs"):
        found, header = _played(batch, source)
        names.append(found)
        its_mu, its_sigma = seasons.seen(rule, header)
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
) -> list[SeedExample]:
    """Some players, by rising rating. `columns`: mu and sigma on the source and the target."""
    order = np.argsort(columns[2], kind="stable")
    places = np.linspace(0, len(order) - 1, min(EXAMPLES, len(order))).round().astype(np.int64)
    rows, rule = order[places], rule_of(rating)
    numbers = np.column_stack([each[rows] for each in columns]).tolist()
    return [
        SeedExample(player, given_mu, given_sigma, mu, sigma, float(rule.rating(mu, sigma)), 1)
        for player, (given_mu, given_sigma, mu, sigma) in zip(
            names.take(rows).texts(), numbers, strict=True
        )
    ]
