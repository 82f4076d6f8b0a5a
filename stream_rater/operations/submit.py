"""`stream-rater submit` and `correct`: send records to `round-completed`."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from stream_rater import places
from stream_rater.config import errors
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ROUND_COMPLETED, shown
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import MOST_SEED_BYTES
from stream_rater.operations import corrections, input_file
from stream_rater.operations.corrections import AFTER_ALL, APPLIED, Planned
from stream_rater.places.port import Submitter
from stream_rater.rounds import correction_records
from stream_rater.rounds.decoder import RoundDecoder, kind_of
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime.progress import counted
from stream_rater.tables.reading import AS_FOUND, Reading


def submit(
    path: Path, settings: Settings, per_second: float | None, reading: Reading = AS_FOUND
) -> None:
    """Send the valid rounds, seeds, resets and corrections of a file; at most `per_second` records,
    if this is given. Raises BadConfiguration, or Failed if lines were rejected or not sent."""
    ladders = places.ladders_of(settings)
    file = input_file.RoundsFile(path, None, reading, ladders, once=True)
    decoder, mistakes = RoundDecoder(ladders), file.mistakes
    with errors.named_failures(), places.opened(settings, writes=True) as place:
        submitter = place.submitter()
        kinds, began_s = Counter[str](), time.monotonic()
        for record in file.records():
            value = (record.value or b"").strip()
            now = structs.replace(record, value=value, received_s=time.time())
            kind = kind_of(record)
            try:
                if correction_records.is_seed(now):
                    seed = checked_seed(now, ladders)
                    submitter.correct(seed.ladder, kind, value, seed.round_id)
                    kinds["seed"] += 1
                elif kind:
                    correction = corrections.checked(now, ladders)
                    if invalid := corrections.rejection_now(correction, ladders, place.end_of):
                        raise invalid
                    names = correction_records.names_in(correction)
                    about = correction_records.round_in(correction) or ", ".join(names)
                    submitter.correct(correction.ladder, kind, value, about)
                    kinds["correction"] += 1
                else:
                    round_ = decoder.read(now)
                    file.order.add(round_.batch)
                    submitter.submit(round_.ladder, round_.round_id, round_.completed_at, value)
                    kinds["round"] += 1
            except Invalid as invalid:
                mistakes.add(record.offset, invalid)
                continue
            mistakes.valid_lines += 1
            if per_second:
                due_s = began_s + mistakes.valid_lines / per_second
                time.sleep(max(0.0, due_s - time.monotonic()))
        submitter.flush()
    if failures := submitter.failures:
        what = counted(len(failures), "record")
        raise errors.Failed(f"{what} not sent, first {shown(failures[0])}")
    others = [counted(kinds[kind], kind) for kind in ("seed", "correction") if kinds[kind]]
    sent = " and ".join([counted(kinds["round"], "round"), *others])
    print(f"{sent} sent{place.later}", file=sys.stderr)
    file.conclude()


def checked_seed(record: Record, ladders: Ladders) -> correction_records.Seed:
    """The seed or reset in a record, valid by its ladder's last parameters. Raises Invalid."""
    if (size := len(record.value or b"")) > MOST_SEED_BYTES:
        text = f"{size} bytes, over the {MOST_SEED_BYTES} of a seed: cut it into several"
        raise Invalid("too-large", text)
    return correction_records.decode_seed(structs.replace(record, offset=AFTER_ALL), ladders)


def send(plan: Sequence[Planned], settings: Settings) -> str:
    """Send corrections in this order. Returns a line. Raises BadConfiguration or Failed."""
    ladders, count = places.ladders_of(settings), counted(len(plan), "correction")
    once = "what was sent twice changes nothing the second time"
    corrections.check_all(plan, ladders)
    with errors.named_failures(), places.opened(settings, writes=True) as place:
        submitter = place.submitter(create=False)
        corrections.check_accepting(plan, ladders, place.end_of)
        corrections.announce(plan)
        for planned in plan:
            if planned.kind == APPLIED:  # it applies only what is in the log before it
                flush(submitter, count, once)
            submitter.correct(planned.ladder, planned.kind, planned.value, planned.subject)
        flush(submitter, count, once)
    (partition, first), (_, last) = submitter.corrections[0], submitter.corrections[-1]
    kinds = Counter(each.kind for each in plan)
    what = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    offsets = f"offsets {first} to {last}"
    if len(plan) == 1:
        what, offsets = plan[0].kind, f"offset {first}"
    topic = f"{settings.topic_prefix}{ROUND_COMPLETED}"
    return f"{what}: {topic}, partition {partition}, {offsets}{place.later}"


def flush(submitter: Submitter, sent: str, why: str) -> None:
    """Wait until everything is sent. Raises Failed if something is not. `sent`: what, with its
    number. `why`: the reason why the command may be run again."""
    submitter.flush()
    if failures := submitter.failures:
        raise errors.Failed(
            f"{len(failures):,} of {sent} not sent, first {shown(failures[0])}: run the same "
            f"command again; {why}"
        )
