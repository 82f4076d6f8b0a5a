"""The ladders' notes: what they add up to, wherever a worker dies, and which files disagree."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from unittest.mock import Mock

import msgspec
import pytest

from stream_rater.config import ladders as config_of_ladders
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import (
    ANY_LADDER,
    FILE_LIMITS,
    TEMPLATE,
    Change,
    Ladder,
    Ladders,
    Limits,
)
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import SeasonStarted
from stream_rater.pipeline import ladder_history
from stream_rater.pipeline.corrections.edits_in_force import recorded_correction
from stream_rater.pipeline.ladder_history import (
    UNKNOWN,
    LadderContradiction,
    LadderLog,
    encode_histories,
    objection,
)
from stream_rater.places.checks import disagreement
from stream_rater.places.kafka import KafkaPlace
from stream_rater.rating.parameters import EloMMR
from stream_rater.runtime import selfcheck, startup
from stream_rater.runtime.startup import check_ladders
from tests.builders.cases import cases
from tests.builders.commands import run
from tests.builders.lines import a_round
from tests.builders.memory_place import MemoryPlace
from tests.builders.memory_places import a_rated_place, an_empty_place, use

CHANGE = 20
OLD, NEW = ("0:x",), ("0:x", "20:y")
ONE = Ladder(rating=EloMMR(weight_limit=0.2, sigma_limit=80.0))


def added_up(notes: Iterable[bytes]) -> LadderLog:
    """What notes say in the end."""
    found = LadderLog()
    for each in notes:
        found.read(each)
    return found


class Died(Exception):
    """An announcer's process ended."""


class Log:
    """Notes and rounds, in one process after the other; each `read` and `write` is counted."""

    def __init__(self) -> None:
        self.notes: list[bytes] = []
        self.end = 0
        """Of the rounds."""
        self.finished = 0
        self.between_steps: Iterator[object] = iter(())
        """Advanced between any two steps of an announcer, which dies where this raises."""

    def read(self) -> LadderLog:
        next(self.between_steps, None)
        return added_up(self.notes)

    def write(self, messages: Sequence[bytes]) -> None:
        next(self.between_steps, None)
        self.notes += messages

    def end_of(self, _: str) -> int:
        next(self.between_steps, None)
        return self.end

    def start(self, own: ladder_history.History) -> None:
        """A worker with this file."""
        proposal = f"proposal {len(self.notes)}"
        ladder_history.announce({"a": own}, self, self.end_of, proposal, lambda _: self.finished)

    def rate_one(self, own: ladder_history.History) -> bool | None:
        """A worker with this file rates a round, by the new parameters or not. None: it may not."""
        offset, self.end = self.end, self.end + 1
        if offset >= ladder_history.allowed_before(own, added_up(self.notes).of("a")):
            return None
        return own == NEW and offset >= CHANGE


def log_of(end: int) -> Log:
    """A ladder that was rated by the old file up to an offset."""
    log = Log()
    log.write(encode_histories("noted", {"a": OLD}))
    log.end = end
    return log


def rated_while_one_starts(log: Log, dies_after: int | None) -> dict[int, bool]:
    """By offset, whether a round was rated by the new parameters, if a starting worker dies."""
    rated = dict[int, bool]()

    def rate(own: ladder_history.History) -> None:
        offset, by_new = log.end, log.rate_one(own)
        if by_new is not None:
            assert rated.setdefault(offset, by_new) == by_new

    def rounds_come() -> Iterator[None]:
        for step in itertools.count():
            if step == dies_after:
                raise Died
            rate(OLD)
            rate(NEW)
            yield

    log.between_steps = rounds_come()
    with contextlib.suppress(Died, LadderContradiction):
        log.start(NEW)
    log.between_steps = iter(())
    for own in (NEW, OLD):
        with contextlib.suppress(LadderContradiction):
            log.start(own)
    for own in (OLD, NEW) * 3:
        rate(own)
    return rated


def test_no_round_is_rated_both_ways() -> None:
    """Wherever a worker dies: what holds in the end says how each was rated."""
    for end, dies_after in itertools.product(range(24), [None, *range(10)]):
        log = log_of(end)
        rated = rated_while_one_starts(log, dies_after)
        holds = log.read().of("a")
        assert holds in (OLD, NEW)
        expected = {offset: holds == NEW and offset >= CHANGE for offset in rated}
        assert expected == rated, (end, dies_after)


def test_of_rival_notes_the_first_counts() -> None:
    """And a proposal that does not go on where the notes end is none."""
    log = Log()
    log.write(encode_histories("noted", {"a": OLD, "b": ("3:z",)}))
    log.write(encode_histories("noted", {"a": ("0:q",)}))
    log.write(encode_histories("proposed", {"a": ("0:q", "7:y"), "c": NEW}))
    ladder_log = log.read()
    assert [ladder_log.of(each) for each in "abc"] == [OLD, (*UNKNOWN, "3:z"), ()]


def test_the_first_decision_counts() -> None:
    """Of a confirmation and a withdrawal; one of another history is none."""
    for first, second, holds in (("confirmed", "withdrawn", NEW), ("withdrawn", "confirmed", OLD)):
        log = log_of(0)
        log.write(encode_histories("proposed", {"a": NEW}))
        log.write(encode_histories("confirmed", {"a": ("0:x", "9:z")}))
        assert log.read().of("a") == (*OLD, "20:not confirmed")
        log.write(encode_histories(first, {"a": NEW}) + encode_histories(second, {"a": NEW}))
        assert log.read().of("a") == holds


def test_a_rebuild_begins_again() -> None:
    """It replaces all histories of ladders that it rated, recorded or proposed, and no others."""
    log = log_of(0)
    log.write(encode_histories("noted", {"b": OLD}) + encode_histories("proposed", {"a": NEW}))
    log.write(encode_histories("restated", {"a": ("0:q",)}))
    ladder_log = log.read()
    assert (ladder_log.of("a"), ladder_log.of("b")) == (("0:q",), OLD)


def test_many_ladders_are_several_notes() -> None:
    """A message has a size."""
    histories = {f"ladder-{i}": OLD for i in range(2 * ladder_history.AT_ONCE + 1)}
    messages = encode_histories("noted", histories)
    assert len(messages) == 3
    assert all(added_up(messages).of(ladder) == OLD for ladder in histories)


def test_what_is_no_note_is_left() -> None:
    """A foreign message changes nothing. A note of a newer release is refused."""
    for junk in (b"", b"\xff", b"{", b"[]", b"7", b'{"kind": 7}', b"[" * 10_000):
        log = log_of(0)
        log.write([junk])
        assert log.read().of("a") == OLD, junk
    with pytest.raises(ladder_history.UnknownLadderEvent, match="'later'"):
        LadderLog().read(b'{"kind": "later", "histories": {"a": ["0:x"]}}')


def test_changes_of_a_ladder_that_nobody_rated_are_recorded_at_the_start() -> None:
    """Before a worker with an older file notes it; one without changes may still be edited."""
    log = Log()
    log.start(OLD)
    assert log.notes == []
    log.end = 100
    log.start(NEW)
    assert log.read().of("a") == NEW
    both = r"file \(x\) and the notes on Kafka \(y\) differ from offset 20 on"
    with pytest.raises(LadderContradiction, match=both):
        log.start(OLD)


def test_a_change_before_what_is_finished_comes_too_late() -> None:
    """Records of a ladder without a note may have been rejected there."""
    for finished, starts in ((CHANGE, True), (CHANGE + 1, False)):
        log = Log()
        log.end, log.finished = CHANGE + 5, finished
        late = pytest.raises(LadderContradiction, match="too late")
        with contextlib.nullcontext() if starts else late:
            log.start((*UNKNOWN, f"{CHANGE}:y"))
        assert (len(log.read().of("a")) == 2) == starts


def test_that_a_ladder_is_unknown_is_recorded() -> None:
    """Older releases do not read such notes. A file that knows it from 0 on contradicts them."""
    (note,) = encode_histories("noted", {"m": UNKNOWN, FILE_LIMITS: ["0:8 bytes"]})
    assert msgspec.json.decode(note)["histories"] == {}
    log = added_up([b'{"kind": "noted", "histories": {"m": []}}', note])
    assert (log.of("m"), log.of(FILE_LIMITS)) == (UNKNOWN, ("0:8 bytes",))
    assert (log.ladders, log.unknown, log.recorded) == ([], ["m"], ["m", FILE_LIMITS])
    known = (*UNKNOWN, "30:x")
    assert ladder_history.continues(known, log.of("m"))
    assert "give it a from_offset" in objection("m", ("0:x",), log.of("m"))
    assert "[limits] of this worker's" in objection(FILE_LIMITS, ["0:9 bytes"], ["0:8 bytes"])
    older = b'{"kind": "noted", "histories": {"m": ["30:x"]}}'
    assert added_up([note, older]).of("m") == added_up([older, note]).of("m") == known
    restated = encode_histories("restated", {"m": UNKNOWN, "n": known})
    assert msgspec.json.decode(restated[0])["histories"] == {"m": [], "n": ["30:x"]}
    log = added_up([older, *restated])
    assert (log.of("m"), log.of("n")) == (UNKNOWN, known)
    restated = encode_histories("restated", {"m": ("0:x",)})
    assert added_up([note, *restated]).of("m") == ("0:x",)


def test_a_file_that_names_an_unknown_ladder_does_not_start() -> None:
    """Nor one whose template is for it, or whose own limits are others."""
    log = Log()
    limits = Ladders(ladders={"a": ONE}).history(FILE_LIMITS)
    log.write(encode_histories("noted", {"m": UNKNOWN, FILE_LIMITS: limits}))
    check(log, "a")
    for named in ("m", TEMPLATE):
        with pytest.raises(BadConfiguration, match="ladder 'm': its records were rejected"):
            check(log, named)
    smaller = Ladders(ladders={"a": ONE}, limits=Limits(max_bytes=1000))
    with pytest.raises(BadConfiguration, match=r"\(1000 bytes, depth 16\) are not those"):
        check_ladders(smaller, log, lambda: [0], dict)


def test_so_many_unknown_ladders_get_notes_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor those that are only read, or have a note."""
    monkeypatch.setattr(ladder_history, "MOST_UNKNOWN", 1)
    log = added_up(encode_histories("noted", {"a": OLD}))
    asked = {"a": NEW, "b": OLD, "m": UNKNOWN, "n": OLD}
    assert ladder_history.to_note(asked, {"b"}, log) == {"m": UNKNOWN, "n": OLD}
    log = added_up(encode_histories("noted", {"l": UNKNOWN}))
    assert ladder_history.to_note(asked, {"b"}, log) == {"a": NEW, "n": OLD}
    assert ladder_history.agreed_histories(asked, log)["m"] == UNKNOWN


class CountsUnknown(LadderLog):
    """Counts how often the unknown ladders are looked for."""

    times = 0

    @property
    def unknown(self) -> list[str]:
        self.times += 1
        return super().unknown


def test_unknown_ladders_are_counted_once() -> None:
    """Not for each name of a batch: producers may send any number, and thousands have notes."""
    log = CountsUnknown()
    asked = {f"m{i}": UNKNOWN for i in range(100)}
    assert ladder_history.to_note(asked, (), log) == asked
    assert ladder_history.to_note({"a": OLD}, (), log) == {"a": OLD}
    assert log.times == 1


def test_terms_are_looked_up_once_for_each_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever names producers send, nothing is kept of them."""
    made = Mock(wraps=config_of_ladders._fingerprint)
    monkeypatch.setattr(config_of_ladders, "_fingerprint", made)
    late = Ladder(rating=ONE.rating, from_offset=CHANGE)
    names = ["a", FILE_LIMITS, *(f"m{i}" for i in range(100))]
    for ladders in (Ladders(ladders={"a": late, TEMPLATE: ONE}), Ladders(ladders={"a": late})):
        slowly = [(ladders.history(name), ladders.views(name)) for name in names]
        made.reset_mock()
        history, views = ladders.by_table(ladders.history), ladders.by_table(ladders.views)
        assert [(history(name), views(name)) for name in names] == slowly
        assert made.call_count == 3, "two of `a`, one of all others"


def test_a_late_decision_is_about_its_own_proposal() -> None:
    """Not about one of the same history that another worker made since."""
    log = log_of(0)
    for kind, by in (
        ("proposed", "first"), ("withdrawn", "first"), ("proposed", "second"),
        ("confirmed", "first"),
    ):  # fmt: skip
        log.write(encode_histories(kind, {"a": NEW}, by))
    assert log.read().of("a") == (*OLD, "20:not confirmed")
    log.write(encode_histories("confirmed", {"a": NEW}, "second"))
    assert log.read().of("a") == NEW


# --- a ladder that is not in the file -------------------------------------------------------------


def check(log: Log, *ladders: str) -> None:
    """A worker with these ladders in its file."""
    check_ladders(Ladders(ladders=dict.fromkeys(ladders, ONE)), log, lambda: [0], dict)


def rated(*ladders: str) -> Log:
    """The notes where these were rated."""
    log = Log()
    history = Ladders(ladders={"a": ONE}).history("a")
    log.write(encode_histories("noted", dict.fromkeys(ladders, history)))
    return log


def test_a_start_without_a_rated_ladder_is_refused() -> None:
    """The error has its name and the cure. An unrated one may be absent; a template rates all."""
    log = rated("a", "b")
    check(log, "a", "b", "new")
    check(log, "a", "b")
    with pytest.raises(BadConfiguration, match="ladder 'b' was rated and is not in the ladders"):
        check(log, "a")
    with pytest.raises(BadConfiguration, match=r"ladder 'a' \(and 1 other\) was rated"):
        check(log, "new")
    check(log, "a", TEMPLATE)


def test_a_rebuild_lets_a_ladder_go_and_come_again() -> None:
    """By a file without it: then it is as if it had never been rated."""
    log = rated("a", "b")
    log.write(encode_histories("restated", {"b": ()}))
    check(log, "a")
    check(log, "a", "b")
    log.notes += rated("b").notes
    assert log.read().in_force("b"), "its first round is recorded again"
    with pytest.raises(BadConfiguration, match="ladder 'b' was rated"):
        check(log, "a")


def test_other_parameters_are_reported_with_the_way_out() -> None:
    """For production, and for who only tries things."""
    reported = objection("a", ("0:x",), ("0:y",))
    assert "rebuild --replace" in reported
    assert "in development" in reported and "another STREAM_RATER_TOPIC_PREFIX" in reported


def test_notes_of_corrections_that_the_log_does_not_reach() -> None:
    """The log ends before them, at offset 0. No worker starts until a rebuild writes them again."""
    log = rated("a")
    season = SeasonStarted(ladder="a", season=1, keep=0.5, sigma=10.0)
    log.write(ladder_history.encode_corrections({"a": [recorded_correction(0, season, 0)]}))
    with pytest.raises(BadConfiguration, match=r"of ladder 'a' at offset 0 .* rebuild --replace"):
        check(log, "a")
    log.write(ladder_history.encode_restated_corrections({"a": []}))
    check(log, "a")


# --- a command with another file ------------------------------------------------------------------

OURS = Ladder(rating=EloMMR(weight_limit=0.1, sigma_limit=60.0))
NEWER = (Change(from_offset=9, rating=EloMMR(weight_limit=0.2, sigma_limit=70.0)),)
CHANGED = Ladders(ladders={"blitz": Ladder(rating=OURS.rating, changes=NEWER)})
FILE = Ladders(ladders={"blitz": OURS, TEMPLATE: ANY_LADDER.ladders[TEMPLATE]})  # The workers'.
NOT_SET = (
    "ladder 'blitz': the default parameters (STREAM_RATER_LADDERS is not set) and the notes in "
    "memory differ from offset 0 on: set STREAM_RATER_LADDERS to the ladders file of the workers"
)


def recorded(ladders: Ladders, *names: str) -> LadderLog:
    """The histories that workers with this file recorded of the ladders that they rated."""
    return added_up(encode_histories("noted", {name: ladders.history(name) for name in names}))


def at(ladders: str = "") -> MemoryPlace:
    """Settings of a place with this ladders file."""
    return an_empty_place(settings=Settings(ladders=ladders))


def test_the_workers_file_agrees() -> None:
    """So do the defaults where workers rate by them, and a file with a future change."""
    log = recorded(FILE, "blitz", "chess")
    assert disagreement(at("l.toml"), FILE, log) == ""
    assert disagreement(at(), ANY_LADDER, recorded(FILE, "chess")) == ""
    assert disagreement(at(), ANY_LADDER, log, only="chess") == ""
    assert disagreement(at(), CHANGED, recorded(FILE, "blitz")) == ""


def test_another_file_does_not() -> None:
    """The text names the file, the first offset that differs, and the number of ladders."""
    assert disagreement(at(), ANY_LADDER, recorded(FILE, "chess", "blitz")) == NOT_SET
    service = KafkaPlace(Settings(ladders="old.toml"), 1.0)
    why = disagreement(service, FILE, recorded(CHANGED, "blitz"))
    assert "the ladders file old.toml and the notes on Kafka differ from offset 9 on" in why
    gone = Ladders(ladders={"other": OURS})
    for count, expected in enumerate(("'blitz': the", "'blitz' (and 1 other):", "(and 2 others):")):
        log = recorded(FILE, *("blitz", "chess", "go")[: count + 1])
        assert expected in disagreement(at("l.toml"), gone, log)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> MemoryPlace:
    """A place where `blitz` was rated by the workers' file. A write to it is an error."""
    rounds = [a_round(number, "ida", "eve", ladder="blitz") for number in range(2)]
    found = a_rated_place(rounds, FILE)
    found._on_write = pytest.fail
    use(monkeypatch, found)
    monkeypatch.setattr(selfcheck, "check", lambda: None)
    monkeypatch.setattr(startup, "configure", lambda: None)
    return found


@cases(
    "command, more",
    [
        ("verify", ": nothing was compared"),
        ("rebuild", ", or give --replace to rate all rounds again by other parameters"),
    ],
)
def test_a_command_without_the_file_refuses(place: MemoryPlace, command: str, more: str) -> None:
    """Before it has compared or written anything."""
    if command == "rebuild":
        place.store.beliefs.clear()
    result = run(command)
    assert (result.exit_code, result.stderr) == (2, f"stream-rater: {NOT_SET}{more}\n")


def test_inspect_warns_and_shows_no_rating(place: MemoryPlace) -> None:
    """The belief itself is shown, because it depends on no file."""
    result = run("inspect", "--ladder", "blitz", "--player", "ida")
    assert result.stderr == f"warning: {NOT_SET}: the shown rating is left out\n"
    first, second, *_ = result.stdout.splitlines()
    assert first == "ida on blitz" and second.startswith("believed: ")
