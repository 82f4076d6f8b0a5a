"""`stream-rater correct`: sends corrections to `round-completed`, or tells what they would do."""

from collections import Counter
from collections.abc import Sequence

from stream_rater.adapters.kafka.producers import Submitter
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.cli.corrections import APPLIED, Planned, announce, check_all, check_taken
from stream_rater.config.errors import Failed
from stream_rater.config.files import service_ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import shown
from stream_rater.operations.live_log import ends_of
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import counted


def send(plan: Sequence[Planned], settings: Settings) -> None:
    """Send corrections in this order, and print where they are."""
    ladders = service_ladders(settings)
    check_all(plan, ladders)
    with named_failures():
        admin = Admin(settings)
        admin.partitions_of(admin.topics.rounds)  # a topic that does not exist is told by its name
        check_taken(plan, ladders, ends_of(admin))
        announce(plan)
        submitter = Submitter(settings, admin.topics.rounds)
        for each in plan:
            if each.kind == APPLIED:  # works in what is there by then
                _flush(submitter, len(plan))
            submitter.correct(each.ladder, each.kind, each.value, each.subject)
        _flush(submitter, len(plan))
    print(_placed(plan, admin.topics.rounds, submitter.corrections))


def _flush(submitter: Submitter, count: int) -> None:
    """Wait for what was sent; Failed if a part of it was not taken."""
    submitter.flush()
    if submitter.failures:
        raise Failed(
            f"{len(submitter.failures):,} of {counted(count, 'correction')} not sent, first "
            f"{shown(submitter.failures[0])}: run the same command again; what was sent twice is "
            "refused the second time"
        )


def _placed(plan: Sequence[Planned], topic: str, places: Sequence[tuple[int, int]]) -> str:
    """What was sent, and where it is: all of it in one partition, that of the ladder."""
    kinds = Counter(each.kind for each in plan)
    what = next(iter(kinds)) if len(plan) == 1 else ", ".join(
        f"{count:,} {kind}" for kind, count in kinds.items()
    )  # fmt: skip
    offsets = [offset for _, offset in places]
    span = f"offset {offsets[0]}" if len(plan) == 1 else f"offsets {offsets[0]} to {offsets[-1]}"
    return f"{what}: {topic}, partition {places[0][0]}, {span}"
