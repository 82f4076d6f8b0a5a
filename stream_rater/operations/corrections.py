"""Builds, validates and describes the events that `stream-rater correct` sends."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import Ladders
from stream_rater.contract import corrections, events
from stream_rater.contract.record import Record
from stream_rater.operations.input_file import file_failures
from stream_rater.replay.files import name_of, read_lines
from stream_rater.rounds.correction_records import amended_message, rejection, well_formed
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime.progress import SHOWN_LINES, counted

APPLIED = "corrections-applied"  # The event type that applies the deferred corrections.
AFTER_ALL = 2**62  # An offset after all changes of a ladder.
PLACEHOLDER_TIME = "2000-01-01T00:00:00Z"  # For checks: an amendment may name no time.
IF_BATCHED = ", once `correct apply` is sent"


class Planned(NamedTuple):
    """A correction to send."""

    kind: str  # Its event type, one of `corrections.KINDS`.
    ladder: str
    value: bytes
    effect: str  # A sentence that describes its effect.
    subject: str = ""  # The round, player or season that it is about.
    batched: bool = False  # Whether it is deferred until the next `corrections-applied`.
    place: str = ""  # The place in the file that names it; empty if it was not in a file.

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The headers of its record, which name its event type."""
        return ((corrections.EVENT_TYPE, self.kind.encode()),)

    def rejected(self, invalid: Invalid) -> str:
        """The error text for a rejection: the place, the reason and the cure, in one line."""
        place = self.place or f"ladder {self.ladder!r}"
        about = f", {self.subject}" if self.subject else ""
        cure = _CURES.get(invalid.code, "")
        return events.shown(f"{place}{about}: {invalid.code}: {invalid}{cure and f': {cure}'}")


_CURES = {
    "unknown-ladder": "name it in the ladders file, which STREAM_RATER_LADDERS names",
    "unknown-round": "`stream-rater watch --from-start --ladder …` shows the ids of its rounds",
    "unknown-player": "`stream-rater watch --from-start --ladder …` shows the ids of its players",
    "already-voided": "there is nothing to do",
    "bad-merge": "name two accounts who never met; a round in which they did can be voided",
    "bad-season": "give a number above those of the seasons before, keep from 0 to 1, sigma from 0",
    "bad-time": "give a time as 2026-11-20T20:15:05Z",
}
"""By error code, what the operator can do."""


# --- building ------------------------------------------------------------------------------------


def voided(ladder: str, round_id: str, reason: str, *, batched: bool) -> Planned:
    """The correction that voids a round."""
    return _planned(
        "round-voided", ladder, {"round_id": round_id}, reason, f"round {round_id!r}",
        f"takes round {round_id!r} back: it will be as if it had never been", batched=batched,
    )  # fmt: skip


def amended(ladder: str, path: Path, reason: str, *, batched: bool) -> Planned:
    """The correction that replaces a round's standings. Raises Failed or BadConfiguration."""
    with file_failures():
        text = b"".join(read_lines(path))
    name = name_of(path)
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Failed(f"{name}: malformed: {error}: give the round as one JSON object") from None
    if not isinstance(fields, dict):
        raise Failed(f"{name}: malformed: give the round as one JSON object")
    if fields.setdefault("ladder", ladder) != ladder:
        raise BadConfiguration(
            f"{name}: the round is of ladder {fields['ladder']!r}, not of {ladder!r}: name its "
            "ladder, or leave the field out"
        )
    fields.pop("event_type", None)
    file_reason, file_batched = fields.pop("reason", ""), fields.pop("batched", False)
    round_id, entries = fields.get("round_id"), fields.get("standings")
    if round_id is None:
        raise Failed(f"{name}: bad-id: round_id is missing: it says which round was another one")
    change = f"{len(entries):,} entries" if isinstance(entries, list) else "other standings"
    planned = _planned(
        "round-amended", ladder, fields, reason or file_reason, f"round {round_id!r}",
        f"puts round {round_id!r} right: {change}, at its place in the order",
        batched=batched or file_batched,
    )  # fmt: skip
    return planned._replace(place=name)


def removed(
    ladder: str, player: str, since: str | None, until: str | None, reason: str, *, batched: bool,
    place: str = "", seed: bool = False,
) -> Planned:  # fmt: skip
    """The correction that removes a player from the rounds of a span of time. `seed`: whether it
    also removes the player from the seeds and resets of that time. `place`: where a file names the
    player; empty without a file."""
    times = {"from": since, "until": until}
    span = {name: time for name, time in times.items() if time is not None}
    of_span = f"the rounds completed {' '.join(map(' '.join, span.items()))}"
    rounds = f"{of_span if span else 'all rounds'}{' and seeds' if seed else ''}"
    fields: dict[str, Any] = {"player": player, **span, **({"seed": True} if seed else {})}
    planned = _planned(
        "player-removed", ladder, fields, reason, f"player {player!r}",
        f"takes player {player!r} out of {rounds}", batched=batched,
    )  # fmt: skip
    return planned._replace(place=place)


def merged(ladder: str, player: str, into: str, reason: str, *, batched: bool) -> Planned:
    """The correction that counts the rounds of a player as those of another player."""
    return _planned(
        "player-merged", ladder, {"player": player, "into": into}, reason, f"player {player!r}",
        f"counts the rounds of player {player!r} as those of {into!r}, those to come, too",
        batched=batched,
    )  # fmt: skip


def season_number(text: str) -> int:
    """A season's number, given in digits or as a format of the present UTC date (as in
    `time.strftime`). Raises BadConfiguration."""
    written = time.strftime(text, time.gmtime()) if "%" in text else text
    if not (written.isascii() and written.isdecimal() and len(written) < 20):
        raise BadConfiguration(
            f"season {text!r}: give a whole number, or a form of the date that makes one, such as "
            "%Y%m"
        )
    return int(written)


def season_started(ladder: str, season: int, keep: float, sigma: float, reason: str) -> Planned:
    """The correction that starts a season."""
    return _planned(
        "season-started", ladder, {"season": season, "keep": keep, "sigma": sigma}, reason,
        f"season {season}",
        f"starts season {season}: mu keeps {keep:g} of its distance from the initial one, sigma "
        f"becomes {sigma:g} at least",
    )  # fmt: skip


def applied(ladder: str, reason: str) -> Planned:
    """The correction that applies the deferred ones."""
    return _planned(APPLIED, ladder, {}, reason, "", "works in the corrections that wait")


def _planned(
    kind: str, ladder: str, fields: dict[str, Any], reason: str, subject: str, effect: str, *,
    batched: bool = False,
) -> Planned:  # fmt: skip
    event = {"ladder": ladder, **fields}
    event |= {"reason": reason} if reason else {}
    event |= {"batched": True} if batched else {}
    try:
        value = events.to_json(event)
    except UnicodeEncodeError:
        raise BadConfiguration(f"{kind}: {subject or repr(ladder)}: ids must be UTF-8") from None
    effect = f"ladder {ladder!r}: {effect}{IF_BATCHED if batched else ''}"
    return Planned(kind, ladder, value, effect, subject, batched)


# --- the rules -----------------------------------------------------------------------------------


def checked(record: Record, ladders: Ladders) -> corrections.Correction:
    """The correction in a record, validated by all rules that need only the record, also those for
    the standings of an amended round. Raises Invalid. See `check_accepting` for the rules about its
    offset."""
    correction = well_formed(record, ladders)
    if isinstance(correction, corrections.RoundAmended):
        message = amended_message(correction, PLACEHOLDER_TIME, 1.0, math.inf)
        RoundDecoder(ladders).read(msgspec.structs.replace(record, value=message, headers=()))
    return correction


def check_all(plan: Sequence[Planned], ladders: Ladders) -> None:
    """Raise Failed if one of these corrections is invalid by the rules of `checked`."""
    bad = []
    for planned in plan:
        record = Record(0, AFTER_ALL, planned.value, planned.headers, received_s=time.time())
        try:
            checked(record, ladders)
        except Invalid as invalid:
            bad.append(planned.rejected(invalid))
    fail_if_any(bad, len(plan), "are invalid: nothing was sent")


EndOf = Callable[[str], int]  # A function that gives the end offset of a ladder's partition.


def rejection_now(
    correction: corrections.Correction, ladders: Ladders, end_of: EndOf
) -> Invalid | None:
    """The reason why the ladder of a correction accepts no correction now; None if it does."""
    offsets = ladders.offsets(correction.ladder)
    if not any(rejection(correction, ladders, offset) for offset in offsets):
        return None  # the ladder accepts corrections at every offset
    return rejection(correction, ladders, end_of(correction.ladder))


def check_accepting(plan: Sequence[Planned], ladders: Ladders, end_of: EndOf) -> None:
    """Raise BadConfiguration if a ladder of these corrections accepts none now."""
    for ladder in dict.fromkeys(each.ladder for each in plan):
        correction = corrections.CorrectionsApplied(ladder=ladder)
        if (invalid := rejection_now(correction, ladders, end_of)) is not None:
            raise BadConfiguration(
                f"{invalid.code}: {invalid}: nothing was sent; to send corrections, give the "
                f'workers a ladders file with corrections = "accepted" from an offset after '
                f"{end_of(ladder)} on, and wait until the ladder's partition has reached it"
            )


def fail_if_any(bad: Sequence[str], count: int, outcome: str) -> None:
    """Raise Failed if there are error lines. A single line is the text of the error. Of several
    lines, the first SHOWN_LINES are printed on standard error."""
    if len(bad) == 1:
        raise Failed(bad[0])
    for line in bad[:SHOWN_LINES]:
        print(line, file=sys.stderr)
    if bad:
        raise Failed(f"{len(bad):,} of {counted(count, 'correction')} {outcome}")


def announce(plan: Sequence[Planned]) -> None:
    """Print on standard error the effect of each correction, for the first SHOWN_LINES of them."""
    for planned in plan[:SHOWN_LINES]:
        print(events.shown(planned.effect), file=sys.stderr)
    if left := plan[SHOWN_LINES:]:
        print(f"and {counted(len(left), 'correction')} more", file=sys.stderr)


def players_in_file(path: Path) -> list[tuple[str, str]]:
    """The players in a file with one id a line, each once, with their places. Raises Failed."""
    players: dict[str, str] = {}
    with file_failures():
        for number, line in enumerate(read_lines(path), 1):
            place = f"{name_of(path)}:{number}"
            try:
                player = line.decode().strip()
            except UnicodeDecodeError:
                raise Failed(f"{place}: bad-id: not UTF-8: give one id a line") from None
            if player:
                players.setdefault(player, place)
    if not players:
        raise Failed(f"{name_of(path)}: no players in it: give one id a line")
    return list(players.items())
