"""The mutants: the protocol with one rule left out at a time. The simulator must find a violation
for each."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.contract.record import Player, Record
from stream_rater.operations.cutoff import Cutoff, Offsets

from . import correction_mutants as corrected
from . import estimator_mutants as stage_1
from . import queued, record_cache, seeded
from . import updater_mutants as stage_2
from .actors import Machines
from .ids import IdsInMemory, IdsInStore

# --- rebuild's rules ------------------------------------------------------------------------------


class CutoffAtTheEnd(Cutoff):
    """Counts rounds whose parts are not applied, or not sent."""

    def of(self, rows: Ints, partitions: Ints) -> Ints:
        return np.full(len(rows), 2**60)


class CutoffAtTheCommit(Cutoff):
    """Counts rounds up to the estimators' committed offset, whatever parts exist."""

    def of(self, rows: Ints, partitions: Ints) -> Ints:
        return self._sent[partitions] - 1


class CutoffOfParts(Cutoff):
    """Believes the parts, although a log lost records."""

    def __init__(
        self, applied: Offsets, sent: Offsets, shards: int, kernel: int, *, everything: bool
    ) -> None:
        super().__init__(applied, sent, shards, kernel)


class CutoffWithIgnored(Cutoff):
    """Counts parts that were cut for fewer shards and came after others had been added."""

    def _takes_effect(self, cut_for: int, record: Record) -> bool:
        return True


class CutoffOfApplied(Cutoff):
    """Counts players whose parts were deleted as new."""

    def of(self, rows: Ints, partitions: Ints) -> Ints:
        return self._before.of(rows)


class CutoffByBeliefs(Cutoff):
    """Takes the values of the beliefs for those that were published."""

    knows_published = False


class RestatesNothing(Cutoff):
    """Does not write the ladder events of corrections again."""

    restates = False


class CutoffByPartsLeft(Cutoff):
    """Counts only the parts that are left, whatever was published."""

    def add_published(self, published: Iterable[tuple[Player, int]]) -> None:
        pass


class CutoffWithWaiting(Cutoff):
    """Counts corrections that were applied, although their parts wait."""

    def pending_corrections(self) -> dict[Player, int]:
        return {}


class CutoffByTheLastRecord(Cutoff):
    """Takes the last record that correction parts have of a player, fresh or not."""

    def _add_corrected(self, player: Player, offset: int, data: bytes) -> None:
        self.corrected[player] = offset, data


class CutoffWithoutSeeds(Cutoff):
    """Passes over the parts of seeds and resets."""

    def _add_seeds(self, record: Record) -> None:
        pass


@dataclass(frozen=True)
class Mutant:
    """A rule that is left out."""

    rule: str
    machines: Machines
    stuck: bool = False
    """Whether it ends in work that is never finished, and not in a wrong rating."""


MUTANTS = {
    "no-floor": Mutant("step 1's floor", Machines(estimator=stage_1.NoFloor)),
    "floor-that-stays": Mutant(
        "the floor's later raise", Machines(estimator=stage_1.FloorThatStays)
    ),
    "priors-read-apart": Mutant(
        "prior and applied in one call", Machines(driver=stage_1.PriorsReadApart)
    ),
    "unacknowledged": Mutant(
        "all parts acknowledged first", Machines(estimator=stage_1.Unacknowledged)
    ),
    "earlier-rows-unnoted": Mutant(
        "notes of a call's earlier rows", Machines(updater=stage_2.EarlierRowsUnnoted)
    ),
    "applies-before-settling": Mutant(
        "settling [c, a) first", Machines(updater=stage_2.AppliesBeforeSettling)
    ),
    "remembered-offset": Mutant(
        "the group's offset, fetched", Machines(updater=stage_2.RememberedOffset)
    ),
    "committed-read-first": Mutant("a before c", Machines(updater=stage_2.CommittedReadFirst)),
    "kept-producer": Mutant("a new producer after a doubt", Machines(driver=stage_2.KeptProducer)),
    "unstable-offset": Mutant("stable offsets only", Machines(driver=stage_2.UnstableOffset)),
    "rejections-outside": Mutant(
        "rejections in the transaction", Machines(driver=stage_1.RejectionsOutside)
    ),
    "offsets-forgotten": Mutant(
        "offsets found again by rejections", Machines(driver=stage_1.OffsetsForgotten)
    ),
    "found-by-the-record": Mutant(
        "offsets found again by what was committed with rejections",
        Machines(driver=stage_1.FoundByTheRecord),
    ),
    "rejects-deleted-again": Mutant(
        "no guess after rejections were deleted", Machines(driver=stage_1.RejectsDeletedAgain)
    ),
    "reads-deleted-again": Mutant(  # each of these two rules protects from the same harm
        "no guess after parts were deleted, and rebuild by what was published",
        Machines(driver=stage_1.ReadsDeletedAgain, cutoff=CutoffByPartsLeft),
    ),
    "plain-commits": Mutant("offsets in a transaction, too", Machines(driver=stage_1.PlainCommits)),
    "ids-in-store": Mutant("no round ids in the store", Machines(estimator=IdsInStore)),
    "events-by-offset": Mutant("events by fresh rows", Machines(updater=stage_2.EventsByOffset)),
    "commits-maximum": Mutant("the contiguous prefix", Machines(estimator=stage_1.CommitsMaximum)),
    "fresh-by-the-first": Mutant(
        "fresh by the rows before", Machines(updater=stage_2.FreshByTheFirst)
    ),
    "no-cap-a-shard": Mutant(
        "a bound on the rows in flight of each shard",
        Machines(estimator=stage_1.NoCapAShard),
        stuck=True,
    ),
    "cached-after-loss": Mutant(
        "cached beliefs dropped with a partition", Machines(estimator=stage_1.CachedAfterLoss)
    ),
    "cached-through-correction": Mutant(
        "cached beliefs dropped at a correction",
        Machines(estimator=stage_1.CachedThroughCorrection),
    ),
    "cached-through-seed": Mutant(
        "cached beliefs dropped at a seed", Machines(estimator=stage_1.CachedThroughSeed)
    ),
    "cached-through-resume": Mutant(
        "cached beliefs dropped at a resumed round",
        Machines(estimator=stage_1.CachedThroughResume),
    ),
    "cached-before-acknowledged": Mutant(
        "cached beliefs of acknowledged rounds only",
        Machines(estimator=stage_1.CachedBeforeAcknowledged),
    ),
    "evicted-not-pending": Mutant(
        "pending parts of evicted beliefs", Machines(estimator=stage_1.EvictedNotPending)
    ),
    "drawn-in-place": Mutant(
        "cached beliefs copied for the draw", Machines(estimator=stage_1.DrawnInPlace)
    ),
    "updated-twice": Mutant(
        "a cached belief with the round once in it", Machines(estimator=stage_1.UpdatedTwice)
    ),
    "cached-by-fingerprint": Mutant(
        "ids behind the fingerprints of a cache", Machines(estimator=stage_1.CachedByFingerprint)
    ),
    "table-taken-over": Mutant(
        "a cache of its own for each estimator", Machines(estimator=stage_1.TableTakenOver)
    ),
    "cached-from-before": Mutant(
        "cached beliefs of the last round only", Machines(estimator=stage_1.CachedFromBefore)
    ),
    "cached-without-the-round": Mutant(
        "cached beliefs with the round in them", Machines(estimator=stage_1.CachedWithoutTheRound)
    ),
    "edits-forgotten": Mutant(
        "notes of corrections read at take-over", Machines(driver=corrected.EditsForgotten)
    ),
    "edits-unnoted": Mutant(
        "corrections recorded before they are finished", Machines(driver=corrected.EditsUnrecorded)
    ),
    "corrected-twice": Mutant(
        "corrections that are fresh only", Machines(updater=corrected.CorrectedTwice)
    ),
    "later-round-passes": Mutant(
        "later rounds after the correction",
        Machines(estimator=corrected.with_corrections(corrected.LaterRoundPasses)),
    ),
    "corrects-too-early": Mutant(
        "corrections after all earlier rounds",
        Machines(estimator=corrected.with_corrections(corrected.CorrectsTooEarly)),
    ),
    "removed-player-rated": Mutant(
        "removed players out of later rounds",
        Machines(estimator=corrected.with_corrections(corrected.RemovedPlayerRated)),
    ),
    "old-name-kept": Mutant(
        "merged players under one name",
        Machines(estimator=corrected.with_corrections(corrected.OldNameKept)),
    ),
    "batch-forgotten": Mutant(
        "a batch whose parts are sent",
        Machines(estimator=corrected.with_corrections(corrected.BatchForgotten)),
    ),
    "corrected-not-pending": Mutant(
        "pending parts of corrected players",
        Machines(estimator=corrected.with_corrections(corrected.CorrectedNotPending)),
    ),
    "unannounced-unrecorded": Mutant(
        "notes of what was last published", Machines(updater=corrected.UnannouncedUnrecorded)
    ),
    "season-twice": Mutant(
        "the season of the remembered prior", Machines(estimator=corrected.SeasonTwice)
    ),
    "checkpoint-after-an-edit": Mutant(
        "checkpoints before all edited rounds",
        Machines(estimator=corrected.with_job(corrected.CheckpointAfterAnEdit)),
    ),
    "checkpoint-must-be-kept": Mutant(
        "corrections without checkpoints",
        Machines(driver=corrected.CheckpointMustBeKept),
        stuck=True,
    ),
    "checkpoint-without-window": Mutant(
        "round ids before a checkpoint",
        Machines(estimator=corrected.with_job(corrected.CheckpointWithoutWindow)),
    ),
    "validated-by-a-later-record": Mutant(
        "verdicts by the log before",
        Machines(estimator=corrected.with_ahead(queued.ValidatedByALaterRecord)),
    ),
    "batch-rejected-whole": Mutant(
        "accepted corrections of a batch applied",
        Machines(estimator=corrected.with_ahead(queued.BatchRejectedWhole)),
    ),
    "ids-lost": Mutant(
        "ids before a checkpoint", Machines(estimator=corrected.with_job(queued.IdsLost))
    ),
    "amended-ids-lost": Mutant(
        "amended names before a checkpoint",
        Machines(estimator=corrected.with_job(queued.AmendedIdsLost)),
    ),
    "seed-over-rounds": Mutant(
        "seeds of players without a round only", Machines(updater=seeded.TakesAnyRow)
    ),
    "reset-of-a-newcomer": Mutant(
        "resets of players with a round only", Machines(updater=seeded.TakesAnyRow)
    ),
    "late-seed": Mutant("seeds after the last row only", Machines(updater=seeded.TakesLateRows)),
    "late-reset": Mutant("resets after the last row only", Machines(updater=seeded.TakesLateRows)),
    "seed-decided-early": Mutant(
        "seeds decided by the updater",
        Machines(estimator=seeded.with_seed_work(seeded.DecidedByTheEstimator)),
    ),
    "seed-first-part": Mutant(
        "all parts of a seed first", Machines(estimator=seeded.SentAfterTheFirstPart)
    ),
    "seed-not-pending": Mutant(
        "pending parts of seeded players",
        Machines(estimator=seeded.with_seed_work(seeded.SeedNotPending)),
    ),
    "round-passes-a-seed": Mutant(
        "later rounds after a seed",
        Machines(estimator=corrected.with_corrections(corrected.LaterRoundPasses)),
    ),
    "seeds-too-early": Mutant(
        "seeds after all earlier rounds",
        Machines(estimator=corrected.with_corrections(seeded.SeedsTooEarly)),
    ),
    "seed-unedited": Mutant(
        "seeds edited by the corrections before",
        Machines(estimator=corrected.with_corrections(seeded.SeedUnedited)),
    ),
    "seed-without-seasons": Mutant(
        "the season of a seed",
        Machines(estimator=corrected.with_corrections(seeded.SeedWithoutSeasons)),
    ),
    "seeds-in-any-order": Mutant(
        "a player's rows in their order",
        Machines(estimator=seeded.with_seed_work(seeded.LastRecordFirst)),
    ),
    "seed-events-by-offset": Mutant(
        "events of fresh seeds", Machines(updater=seeded.SeedEventsByOffset)
    ),
    "seed-unannounced-unrecorded": Mutant(
        "notes of what was published before a seed",
        Machines(updater=corrected.UnannouncedUnrecorded),
    ),
    "cutoff-with-waiting": Mutant(
        "rebuild without corrections that wait", Machines(cutoff=CutoffWithWaiting)
    ),
    "cutoff-by-the-last-record": Mutant(
        "rebuild from correction parts that were fresh", Machines(cutoff=CutoffByTheLastRecord)
    ),
    "cutoff-without-seeds": Mutant(
        "rebuild by parts of seeds, too", Machines(cutoff=CutoffWithoutSeeds)
    ),
    "cutoff-by-parts-left": Mutant(
        "rebuild by what was published", Machines(cutoff=CutoffByPartsLeft)
    ),
    "rebuilt-without-notes": Mutant(
        "rebuild that notes the corrections", Machines(cutoff=RestatesNothing)
    ),
    "rebuilt-beside-other-notes": Mutant(
        "rebuild that drops notes of another log", Machines(cutoff=RestatesNothing)
    ),
    "rebuilt-without-published": Mutant(
        "rebuild with what was published", Machines(cutoff=CutoffByBeliefs)
    ),
    "misplaced-taken": Mutant(
        "rounds in their ladder's partition only", Machines(estimator=stage_1.MisplacedTaken)
    ),
    "first-piece": Mutant(
        "all pieces of a large round first", Machines(estimator=stage_1.FirstPart)
    ),
    "ids-in-memory": Mutant("duplicates by the W offsets before", Machines(estimator=IdsInMemory)),
    "current-prior": Mutant("the remembered prior", Machines(estimator=stage_1.CurrentPrior)),
    "resumed-not-pending": Mutant(
        "pending parts of a resumed round", Machines(estimator=stage_1.ResumedNotPending)
    ),
    "notes-read-once": Mutant(
        "notes read after each poll", Machines(driver=stage_1.LadderEventsReadOnce)
    ),
    "files-not-compared": Mutant(
        "ladders files compared", Machines(estimator=stage_1.FilesNotCompared)
    ),
    "publishes-refills": Mutant(
        "[a, c) without events", Machines(updater=stage_2.PublishesRefills)
    ),
    "publishes-what-was-lost": Mutant(
        "events of owned shards only", Machines(updater=stage_2.PublishesWhatWasLost)
    ),
    "publishes-what-went-ahead": Mutant(
        "events of applied parts only", Machines(driver=stage_2.PublishesWhatWentAhead)
    ),
    "marks-overlooked": Mutant("the marks of rebuilds", Machines(updater=stage_2.MarksOverlooked)),
    "cut-unchecked": Mutant("parts of as many shards only", Machines(updater=stage_2.CutUnchecked)),
    "shards-uncounted": Mutant(
        "as many shards as at the start", Machines(estimator=stage_1.ShardsUncounted)
    ),
    "no-compare-and-set": Mutant(
        "compare-and-set on applied", Machines(driver=stage_2.NoCompareAndSet)
    ),
    "epoch-not-compared": Mutant(
        "compare-and-set on the epoch", Machines(driver=stage_2.EpochNotCompared)
    ),
    "absences-not-compared": Mutant(
        "as many new beliefs as were absent", Machines(driver=stage_2.AbsencesNotCompared)
    ),
    "cache-kept-after-a-failure": Mutant(
        "cached records dropped after a failure", Machines(updater=record_cache.KeptAfterAFailure)
    ),
    "cache-kept-over-a-reassignment": Mutant(
        "cached records dropped with a shard", Machines(updater=record_cache.KeptOverAReassignment)
    ),
    "cache-kept-after-a-mismatch": Mutant(
        "cached records dropped after a mismatch",
        Machines(updater=record_cache.KeptAfterAMismatch),
    ),
    "cache-kept-over-a-rebuild": Mutant(
        "cached records of the present epoch", Machines(driver=stage_2.EpochNotCompared)
    ),
    "cache-of-a-stale-read": Mutant(
        "records read at the expected position", Machines(updater=record_cache.StaleReadTaken)
    ),
    "cache-without-corrections": Mutant(
        "cached records after corrections", Machines(updater=record_cache.CorrectionsNotCached)
    ),
    "cache-without-seeds": Mutant(
        "cached records after seeds and resets", Machines(updater=record_cache.SeedsNotCached)
    ),
    "cache-by-fingerprint": Mutant(
        "cached records by exact ids", Machines(updater=record_cache.FingerprintForTheId)
    ),
    "cache-with-older-copies": Mutant(
        "one cached record of a player", Machines(updater=record_cache.OlderCopyFound)
    ),
    "cache-hides-what-vanished": Mutant(
        "a count of new beliefs without a read, too",
        Machines(updater=record_cache.AbsencesUncounted),
    ),
    "foreign-priors": Mutant(
        "no priors of another history", Machines(estimator=stage_1.ForeignPriors)
    ),
    "tails-not-compared": Mutant(
        "the last record that was applied", Machines(driver=stage_2.TailsNotCompared)
    ),
    "source-not-compared": Mutant(
        "the last record that was finished", Machines(estimator=stage_1.SourceNotCompared)
    ),
    "cutoff-of-parts": Mutant("rebuild of a torn log", Machines(cutoff=CutoffOfParts)),
    "cutoff-at-the-end": Mutant("rebuild up to what was applied", Machines(cutoff=CutoffAtTheEnd)),
    "cutoff-at-the-commit": Mutant("rebuild by parts first", Machines(cutoff=CutoffAtTheCommit)),
    "cutoff-of-applied": Mutant(
        "rebuild of players whose parts are gone", Machines(cutoff=CutoffOfApplied)
    ),
    "cutoff-with-ignored": Mutant(
        "rebuild without what was cut for fewer", Machines(cutoff=CutoffWithIgnored)
    ),
}
