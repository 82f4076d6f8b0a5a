"""Many corrections at once: the work that they make, counted, and not timed."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from stream_rater.adapters.local_driver import LocalDriver, estimator_worker, updater_worker
from stream_rater.adapters.memory import Log, Store
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import to_json
from stream_rater.contract.seeds import MOST_PLAYERS
from stream_rater.pipeline import ports
from stream_rater.pipeline.corrections.correction_job import CorrectionJob
from stream_rater.pipeline.corrections.correction_validator import VERDICTS_AT_ONCE, LogContext
from stream_rater.pipeline.corrections.edits_in_force import APPLIED
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.updater.updater import Updater
from tests.builders.lines import a_round

LATER_S, TIME = 1.8e9, "2026-01-01T00:00:00Z"


def sent(log: Log, kind: str = "", ladder: str = "l", **about: Any) -> int:
    """Append a record; returns its offset."""
    headers = ((EVENT_TYPE, kind.encode()),) if kind else ()
    return log.submit(0, to_json({"ladder": ladder, **about}), headers, LATER_S)


def duel(log: Log, number: int, *players: str, ladder: str = "l") -> None:
    sent(log, **a_round(number, *players, ladder=ladder, completed_at=TIME))


def steps_of(job: CorrectionJob, driver: LocalDriver) -> int:
    """Do a job; returns in how many pieces, between which other rounds have their turn."""
    for count in range(1, 10**6):
        step, outcome = job.step(), None
        try:
            while True:
                outcome = driver.perform(step.send(outcome))
        except StopIteration as ended:
            if ended.value:
                return count
    raise AssertionError("it does not end")


@pytest.mark.parametrize("seeded", [False, True])
def test_a_wave_of_10_000_is_validated_in_parts_and_looks_at_its_own_rounds(
    monkeypatch: pytest.MonkeyPatch, *, seeded: bool
) -> None:
    """Each verdict looks at its own player's rounds alone, and others are rated in between."""
    players, log = 10_000, Log(1, 1)
    for i in range(0, players, MOST_PLAYERS if seeded else 2):
        if seeded:
            rows = [{"player": f"p-{i + k}", "mu": 1600.0} for k in range(MOST_PLAYERS)]
            sent(log, "players-seeded", round_id=f"s{i}", at=TIME, players=rows)
        else:
            duel(log, i, f"p-{i}", f"p-{i + 1}")
    recorded, place = list[ports.RecordedCorrection](), len(log.rounds[0]) + players
    for i in range(players):
        at = sent(log, "player-removed", player=f"p-{i}", batched=True, seed=seeded)
        body = Raw(log.rounds[0][at].value or b"")
        recorded.append(ports.RecordedCorrection(at, "player-removed", body))
    assert sent(log, APPLIED) == place
    driver = estimator_worker(log, Store())
    job = CorrectionJob("l", 0, place, [], recorded, (), LogContext(ANY_LADDER, 100, 1))
    examined = list[int]()
    validate_proposed = job._validate_proposed

    def counted(hearing: Any, proposed: Any) -> Any:
        yield from validate_proposed(hearing, proposed)
        examined.append(hearing.ledger.rounds_examined)

    monkeypatch.setattr(job, "_validate_proposed", counted)
    assert steps_of(job, driver) >= players // VERDICTS_AT_ONCE
    assert len(job.accepted) == players and not job.rejected
    assert examined == [players], "of two players of a round the first has it"


class Actor:
    """A machine and what does its effects."""

    def __init__(self, driver: LocalDriver, machine: ports.Step[Any]) -> None:
        self.driver, self.machine = driver, machine
        self.effect: ports.Effect[Any] = next(machine)

    def advance(self) -> ports.Effect[Any]:
        """Do one effect, and return it."""
        done = self.effect
        self.driver.now_s += 0.01
        self.effect = self.machine.send(self.driver.perform(done))
        return done


class Crowd:
    """An estimator and an updater with memory servers."""

    def __init__(self, *, checkpoint_every: int = 0) -> None:
        self.log, store = Log(1, 1), Store()
        estimators, updaters = self.log.estimators, self.log.updaters
        estimators.committed = updaters.committed = {0: 0}
        estimator, updater = estimator_worker(self.log, store), updater_worker(self.log, store)
        estimators.assign([estimator])
        updaters.assign([updater])
        machine = Estimator(
            ANY_LADDER, 1, 1, window=100, commit_every_s=0.0, checkpoint_every=checkpoint_every
        )
        self.crew = [Actor(estimator, machine.run()), Actor(updater, Updater(1).run())]
        self.read: list[ports.ReadAgain] = []
        """What was read again, without reads that only let go."""
        self.counts: Counter[type] = Counter()
        """How often the estimator did each effect."""

    def work(self, most: int = 100_000) -> None:
        """Until all is committed."""
        end = len(self.log.rounds[0])
        for _ in range(most):
            effect, _ = [actor.advance() for actor in self.crew]
            self.counts[type(effect)] += 1
            if isinstance(effect, ports.ReadAgain) and effect.first < effect.end:
                self.read.append(effect)
            if isinstance(effect, ports.CommitSource) and self.log.estimators.committed[0] == end:
                return
        raise AssertionError("it does not end")

    @property
    def passes(self) -> int:
        """How often the log was read from its start."""
        return sum(each.first == 0 for each in self.read)

    def codes(self) -> list[tuple[int, str]]:
        """Of what was rejected, in order."""
        return sorted((each.record.offset, each.code) for each in self.log.rejected)


def plain(log: Log, number: int) -> int:
    """A correction of a round that is not there."""
    return sent(log, "round-voided", round_id=f"nope-{number}")


def of_a_player(log: Log, number: int) -> int:
    return sent(log, "player-removed", player=f"nobody-{number}")


def elsewhere(log: Log, number: int) -> int:
    """Each on a ladder of its own."""
    return sent(log, "round-voided", ladder=f"m{number}", round_id="nope")


def batched(log: Log, number: int) -> int:
    """Each in a batch of its own."""
    found = sent(log, "round-voided", round_id=f"nope-{number}", batched=True)
    sent(log, APPLIED)
    return found


def test_refused_corrections_of_a_queue_take_one_pass() -> None:
    """The first one reads the log. The queued ones behind it are validated in the same pass."""
    for kind in (plain, of_a_player, elsewhere, batched):
        crowd = Crowd()
        for i in range(30):
            duel(crowd.log, i, f"a-{i}", f"b-{i}")
            duel(crowd.log, i, f"a-{i}", f"b-{i}", ladder=f"m{i}")
        crowd.work()
        rejected = [kind(crowd.log, i) for i in range(30)]
        duel(crowd.log, 100, "a-1", "new")
        crowd.work()
        code = "unknown-player" if kind is of_a_player else "unknown-round"
        assert crowd.codes() == [(offset, code) for offset in rejected], kind
        assert crowd.passes == 1, kind


def test_a_batch_that_is_rejected_with_others_is_not_validated_again() -> None:
    """The end of the batch is recorded with them, so the next one does not reject it once more."""
    crowd = Crowd()
    duel(crowd.log, 0, "a", "b")
    crowd.work()
    waits = sent(crowd.log, "player-removed", player="nobody", batched=True)
    rejected = [of_a_player(crowd.log, i) for i in range(3)]
    applied = sent(crowd.log, APPLIED)
    crowd.work()
    assert crowd.codes() == [(offset, "unknown-player") for offset in (waits, *rejected)]
    assert [each.offset for each in crowd.log.read().corrections["l"]] == [waits, applied]
    later = batched(crowd.log, 1)
    crowd.work()
    assert [offset for offset, _ in crowd.codes()] == [waits, *rejected, later]


def test_what_waits_for_one_record_is_recorded_together() -> None:
    """1,000 removals take a few messages. Those of other ladders or behind a round are separate."""
    crowd = Crowd()
    for i in range(0, 1_000, 2):
        duel(crowd.log, i, f"p-{i}", f"p-{i + 1}")
    crowd.work()
    polls = crowd.counts[ports.Poll]
    for i in range(1_000):
        sent(crowd.log, "player-removed", player=f"p-{i}", batched=True)
        if i == 500:
            sent(crowd.log, "player-removed", ladder="m", player="p", batched=True)
            duel(crowd.log, 1_000, "new", "newer")
    crowd.work()
    assert crowd.counts[ports.NoteCorrections] <= 5 and crowd.counts[ports.Poll] - polls <= 50
    notes = crowd.log.read().corrections
    assert [msgspec.json.decode(each.correction)["player"] for each in notes["l"]] == [
        f"p-{i}" for i in range(1_000)
    ]
    assert [each.at for each in notes["m"]] == [-1]
    sent(crowd.log, APPLIED)
    crowd.work()
    assert len(crowd.log.read().corrections["l"]) == 2_001 and not crowd.codes()


def test_with_a_checkpoint_what_is_not_there_takes_no_pass_from_the_start() -> None:
    """Checkpoints know which ids are before them."""
    crowd = Crowd(checkpoint_every=1)
    for i in range(250):
        duel(crowd.log, i, f"a-{i}", f"b-{i}")
    sent(crowd.log, "round-voided", round_id="r249")
    crowd.work()
    before = crowd.passes
    rejected = [of_a_player(crowd.log, 1)]
    crowd.work()
    rejected.append(plain(crowd.log, 1))
    crowd.work()
    assert [offset for offset, _ in crowd.codes()] == rejected
    assert crowd.passes == before
    found = [each for each in crowd.read if each.end >= rejected[0]]
    assert min(each.first for each in found) >= 250 - 100  # the window


def test_what_is_accepted_in_a_queue_counts_for_what_is_behind_it() -> None:
    """Of three that void one round the first counts. The last one's player has no round left."""
    crowd = Crowd()
    for i in range(3):
        duel(crowd.log, i, f"a-{i}", f"b-{i}")
    crowd.work()
    plain(crowd.log, 1)
    sent(crowd.log, "round-voided", round_id="r1")
    rejected = [sent(crowd.log, "round-voided", round_id="r1") for _ in range(2)]
    rejected.append(sent(crowd.log, "player-removed", player="a-1"))
    duel(crowd.log, 7, "a-1", "b-1")
    late = sent(crowd.log, "round-voided", round_id="r8")
    duel(crowd.log, 8, "a-2", "c")
    crowd.work()
    codes = ["unknown-round", "already-voided", "already-voided", "unknown-player", "unknown-round"]
    offsets = [rejected[0] - 2, *rejected, late]
    assert crowd.codes() == list(zip(offsets, codes, strict=True))
    notes = crowd.log.read().corrections["l"]
    assert [(each.event_type, each.offset) for each in notes] == [("round-voided", rejected[0] - 1)]
