"""Writes the comparison of systems on games as Markdown."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from stream_rater.evaluation.bootstrap import VERDICTS
from stream_rater.evaluation.fits import DEFAULT, LOG_LOSS
from tests.benchmarks.lab.evidence import Effort
from tests.benchmarks.lab.figures import CHOSEN, number, table
from tests.benchmarks.lab.forward import USUAL_DIMENSIONS
from tests.benchmarks.lab.game import TRAIN
from tests.benchmarks.lab.games import REFERENCE, Result, role_of

AIM = {DEFAULT: "default", LOG_LOSS: "tuned"}
MEASURE = {"log_loss": "log loss", "order": "order, %", "order_all": "order of all, %"}  # fmt: skip
DIGITS = {"log_loss": 4, "order": 2, "order_all": 2}


FEW = 30  # The number of rounds to tune on below which the report warns that they say little.


def notes(effort: Effort, absent: Sequence[str]) -> list[str]:
    """Sentences for the report: the limits of the effort, and the peers that are not installed."""
    sentences = [
        f"{effort.trials} configurations were tried for a system of {USUAL_DIMENSIONS} parameters, "
        "and as many for each parameter of the others."
    ]
    if effort.rounds is not None:
        sentences.append(f"Of each file, the first {effort.rounds:,} rounds at most were read.")
    if absent:
        sentences.append(f"Not installed, and left out: {', '.join(absent)}.")
    return sentences


def _few(results: Sequence[Result]) -> list[str]:
    first = {each.game: each.rounds - each.scored_rounds for each in results}
    return [
        f"{game}: {count} rounds to tune on, which say little."
        for game, count in first.items() if count < FEW
    ]  # fmt: skip


def _scored(results: Sequence[Result]) -> list[str]:
    """About the draws that are scored, and the pairs that are left out for every system alike."""
    found = []
    for each in results:
        parts = [f"{each.game}: {each.pairs_scored:,} pairs are scored"]
        for count, what in (
            (each.draws_scored, "of which {} drew: log loss and Brier score have three outcomes"),
            (each.draws_left_out, "{} that drew are left out"),
            (each.unfinished_left_out, "{} of which neither finished are left out"),
        ):  # fmt: skip
            if count:
                parts.append(what.format(f"{count:,}"))
        if len(parts) > 1:
            found.append(f"{'; '.join(parts)}.")
    return found


def _not_finished(results: Sequence[Result]) -> list[str]:
    """Sentences about the systems that did not finish in time."""
    return [
        f"{each.game}: {one.sentence()}, and is left out of all comparisons."
        for each in results for one in each.not_finished
    ]  # fmt: skip


def _at_ends(results: Sequence[Result]) -> list[str]:
    """About parameters that ended at an end of their range, as after a short first part."""
    return [
        f"{each.game}: {fitted.system} ended at an end of the range of {', '.join(v.at_ends)}."
        for each in results for fitted in each.systems for v in fitted.variants if v.at_ends
    ]  # fmt: skip


def _failed(results: Sequence[Result]) -> list[str]:
    """About rounds on which a package failed, as where its numbers leave the range of floats."""
    return [
        f"{each.game}: {fitted.system} ({AIM[v.tuned_for]}) failed on {v.failed_rounds:,} of "
        f"{each.rounds:,} rounds. They changed none of its ratings."
        for each in results for fitted in each.systems for v in fitted.variants if v.failed_rounds
    ]  # fmt: skip


def as_json(results: Sequence[Result], notes: Sequence[str]) -> bytes:
    """Encode the notes and all results as JSON."""
    whole = msgspec.json.encode({"notes": notes, "games": results})
    return msgspec.json.format(whole) + b"\n"


def page(results: Sequence[Result], notes: Sequence[str]) -> list[str]:
    """The lines of the report: its notes and all tables. `notes` are sentences made by `notes`."""
    return [
        "## Games", "",
        f"Each system is tuned on the first {TRAIN:.0%} of the rounds and scored on the others, by "
        "the same code.", "",
        *(
            f"- {note}" for note in (
                *notes, *_not_finished(results), *_few(results), *_scored(results),
                *_at_ends(results), *_failed(results),
            )
        ), "",
        *against_peers(results), *counts(results), *systems(results), *gains(results),
        *parameters(results),
    ]  # fmt: skip


def against_peers(results: Sequence[Result]) -> list[str]:
    """The table that compares our system to use with each peer."""
    rows = []
    for each in results:
        for v in each.of_chosen():
            digits, d = DIGITS[v.measure], v.difference
            interval = f"{d.mean:+.{digits}f} [{d.low:+.{digits}f}, {d.high:+.{digits}f}]"
            rows.append([
                each.game, role_of(each.game), v.ours, v.peer, MEASURE[v.measure], interval,
                v.verdict,
            ])  # fmt: skip
    return [
        "### Ours against the peers", "",
        f"Ours is {REFERENCE} on all games; where it does not take part, the one with the least "
        "log loss on the first part. The difference is ours less the peer's on the other rounds, "
        "with its 95 % interval (paired bootstrap over rounds). Less log loss is better, and more "
        "pairs in the right order are.", "",
        CHOSEN, "",
        *table(["game", "file", "ours", "peer", "measure", "difference", "ours is"], rows), "",
    ]  # fmt: skip


AT_FIRST = "the least log loss on the first part"


def verdict_counts(results: Sequence[Result]) -> dict[str, Counter[str]]:
    """Each verdict on each of ours; AT_FIRST: on those with the least log loss at first."""
    found: dict[str, Counter[str]] = {}
    for each in results:
        for v in each.verdicts:
            found.setdefault(v.ours, Counter())[v.verdict] += 1
    at_first = [v for each in results for v in each.verdicts if v.ours == each.least_at_first]
    if at_first:
        found[AT_FIRST] = Counter(v.verdict for v in at_first)
    return found


def counts(results: Sequence[Result]) -> list[str]:
    """The table of the verdict counts, which shows each of our systems as the one for all games."""
    rows = [
        [system, *(str(count[verdict]) for verdict in VERDICTS)]
        for system, count in verdict_counts(results).items()
    ]
    return [
        "### Each of ours against all peers", "",
        "How often each of our systems is better or worse than a peer, over all games and the "
        "comparisons above, if it were the one for all.", "",
        *table(["ours", *VERDICTS], rows), "",
    ]  # fmt: skip


def systems(results: Sequence[Result]) -> list[str]:
    """The table of the measures of every system, by its first guess and tuned."""
    rows = []
    for each in results:
        for fitted in each.systems:
            name = f"**{fitted.system}**" if fitted.system == each.ours else fitted.system
            for v in fitted.variants:
                rows.append([
                    each.game, name, AIM[v.tuned_for], number(v.order, 2),
                    number(v.order_all, 2), number(v.log_loss, 4), number(v.brier, 4),
                    number(v.calibration_error, 4), number(v.us_update, 2),
                ])  # fmt: skip
    return [
        "### Systems", "",
        "Order is the pairs in the right order, of sides that played five rounds before, and of "
        "all. The log loss of a coin is 0.6931, its Brier score 0.25; where draws are predicted, "
        "that of three equal chances is 1.0986. Tuned systems have the calibration that suits the "
        "rounds so far.", "",
        *table(["game", "system", "parameters", "order, %", "order of all, %", "log loss", "Brier",
                "calibration error", "µs an update"], rows), "",
    ]  # fmt: skip


def gains(results: Sequence[Result]) -> list[str]:
    """The table of the log losses after each step of tuning."""
    rows = []
    for each in results:
        for fitted in each.systems:
            gain = fitted.gain
            steps = gain.default, gain.calibrated, gain.tuned, gain.validated, gain.followed
            kept = "taken" if fitted.won else "dropped"
            rows.append([
                each.game, fitted.system, *(number(step, 4) for step in steps), kept,
                str(fitted.changes),
            ])  # fmt: skip
    return [
        "### What tuning gains", "",
        "Log loss on the other rounds: by the first guess; by it with the calibration that "
        "suits the rounds so far, as in the columns after it; by the parameters tuned on the first "
        "part; by those, unless they did not win on rounds that their search had not seen; and by "
        "the parameters that predicted best so far, which may change from part to part.", "",
        *table(["game", "system", "default", "calibrated", "tuned", "validated", "followed",
                "tuned ones were", "changes"], rows), "",
    ]  # fmt: skip


def parameters(results: Sequence[Result]) -> list[str]:
    """The list of the parameters that predicted best at the end, for each system."""
    lines = []
    for each in results:
        for fitted in each.systems:
            v = fitted.of(LOG_LOSS)
            config = msgspec.json.encode(v.config).decode()
            factor, width, upset = v.last
            lines.append(
                f"- {each.game}: `{config}`; calibration at the end: variance factor {factor:.3f}, "
                f"draw width {width:.3g}, upset {upset:.3f}"
            )
    return ["### Parameters found", "", *lines, ""]
