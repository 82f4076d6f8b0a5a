"""Writes the results of the repeated experiments as Markdown tables and pictures."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from stream_rater.evaluation.fits import LOG_LOSS
from stream_rater.evaluation.plots import pyplot, save
from stream_rater.evaluation.tuning import without_defaults
from tests.benchmarks.document.rows import Origin, made
from tests.benchmarks.document.tables import BY_SECTION
from tests.benchmarks.lab import evidence
from tests.benchmarks.lab.forward import USUAL_DIMENSIONS
from tests.benchmarks.lab.games import CHOOSING, Result
from tests.benchmarks.lab.rows import Report, rows

PUBLISHED = tomllib.loads(Path(__file__).with_name("published.toml").read_text())
"""What the Elo-MMR paper and its preprint report: by data set and system, and of farming."""

CHOSEN = (  # A note for reports: the files by which systems, noise and first guesses were chosen.
    "The two-moment filter, its defaults, and the first guesses of it and of Elo-MMR were chosen "
    f"by the files {', '.join(CHOOSING)}: on these they are no test."
)

Lines = Iterable[str]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def number(value: float | None, digits: int) -> str:
    """The value with this number of decimals, or a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def datasets(data: Sequence[evidence.DataSet]) -> list[str]:
    """Table 1: the data sets."""
    rows = []
    for each in data:
        sizes = each.sizes()
        rows.append([each.name, f"{len(sizes):,}", f"{sum(sizes) / max(len(sizes), 1):,.0f}"])
    return ["## Data sets (Table 1)", "", *table(["", "rounds", "entries a round"], rows), ""]


def accuracy(entries: Sequence[evidence.Entry], *, beside_paper: bool) -> list[str]:
    """Table 2, with differences from the reference and parameters, perhaps beside the paper's."""
    rows, parameters, of = [], [], dict[str, str]()
    for entry in entries:
        of[entry.data] = entry.of.sentence()
        gap = "–"
        if entry.against is not None:
            d = entry.against
            gap = f"{d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}]" + (" noise" if d.noise else "")
        rows.append([
            entry.data, entry.system, ", ".join(entry.at_ends) or "–",
            number(entry.measures["pair_inversion"], 3), gap,
            number(entry.measures["rank_deviation"], 3),
            number(entry.measures["kendall_tau"], 4), number(entry.measures["log_loss"], 4),
            number(entry.measures["brier"], 4),
            *([papers(entry)] if beside_paper else []),
        ])  # fmt: skip
        config = msgspec.json.encode(without_defaults(entry.outcome.config)).decode()
        parameters.append(f"- {entry.data}: `{config}`")
    return [
        "## Accuracy (Table 2)", "",
        f"Each system is tuned on the first {evidence.TRAIN:.0%} of the rounds and scored on the "
        f"others. The difference is to {evidence.REFERENCE}, with its 95 % interval (paired "
        "bootstrap over rounds).",
        "A parameter that ended at an end of its range may have followed the noise of a short "
        "first part: do not trust that row.", "",
        CHOSEN, "",
        *(f"- {data}: {sentence}." for data, sentence in of.items()), "",
        *table(["data", "system", "at an end of its range", "pair inversion %", "difference",
                "rank deviation %", "Kendall tau", "log loss", "Brier",
                *(["paper"] if beside_paper else [])], rows),
        "", "Parameters found:", "", *parameters, "",
    ]  # fmt: skip


def papers(entry: evidence.Entry) -> str:
    """The paper's figures for an entry's system and data set, or a dash if it has none."""
    paper = PUBLISHED["paper"].get(entry.data, {}).get(entry.system)
    return "–" if paper is None else f"{paper[0]} / {paper[1]}"


def times(entries: Sequence[evidence.Entry]) -> list[str]:
    """Table 3: the seconds spent on rating alone."""
    rows = []
    for entry in entries:
        players, seconds = float(entry.outcome.players.sum()), entry.outcome.rating_s
        speed = f"{1e6 * seconds / max(players, 1.0):.2f}"
        rows.append([entry.data, entry.system, number(seconds, 2), speed])
    headings = ["data", "system", "seconds", "µs a player and round"]
    return ["## Time (Table 3)", "", "Rating alone, one thread.", "", *table(headings, rows), ""]


def farming(careers: Mapping[str, evidence.Careers], out: Path, whose: str) -> list[str]:
    """Figure 2: both careers, also in `out`/farming.png. Raises MissingExtra and OSError."""
    plots = pyplot()
    figure, axes = plots.subplots(1, len(careers), figsize=(5.5 * len(careers), 4), squeeze=False)
    for ax, (system, career) in zip(axes[0], careers.items(), strict=True):
        ax.plot(career.honest, label="honest")
        ax.plot(career.farmed, label="farming")
        ax.axvspan(evidence.HONEST, evidence.HONEST + evidence.FARMED, alpha=0.12)
        ax.set(title=system, xlabel="own round", ylabel="rating")
        ax.legend()
    save(plots, figure, out / "farming.png")
    rows = [
        [system, number(c.honest[-1], 0), number(c.farmed[-1], 0), f"{c.gain:+.0f}",
         f"{max(f - h for f, h in zip(c.farmed, c.honest, strict=True)):+.0f}"]
        for system, c in careers.items()
    ]  # fmt: skip
    return [
        "## Farming volatility (Figure 2)", "",
        f"{whose}: {evidence.HONEST} honest rounds, {evidence.FARMED} with a fall to last "
        f"place whenever the Topcoder rating is high, {evidence.HARVEST} honest ones.", "",
        *table(["system", "honest", "farmed", "gain", "most ever ahead"], rows),
        "", "![ratings after each round](farming.png)", "",
    ]  # fmt: skip


def by_size(found: Mapping[str, Sequence[float | None]], at: Sequence[int], out: Path,
            name: str, *, tuned: bool) -> list[str]:  # fmt: skip
    """Figure 3: pair inversion by size, also in `out`/sizes.png. Raises MissingExtra, OSError."""
    plots = pyplot()
    figure, ax = plots.subplots(figsize=(6, 4))
    for system, values in found.items():
        ax.plot(at, [float("nan") if v is None else v for v in values], marker="o", label=system)
    ax.set(xscale="log", xlabel="entries in a round", ylabel="pair inversion, %")
    ax.legend()
    save(plots, figure, out / "sizes.png")
    rows = [[system, *(number(v, 2) for v in values)] for system, values in found.items()]
    by = "are tuned on its first rounds" if tuned else "have their first guesses"
    return [
        "## Small rounds (Figure 3)", "",
        f"Rounds of {name}, each dealt at random into rounds of so many entries: pair inversion, "
        f"%. The systems {by}.", "", *table(["system", *map(str, at)], rows), "",
        "![pair inversion by size](sizes.png)", "",
    ]  # fmt: skip


# --- games ----------------------------------------------------------------------------------------

SECTIONS = {
    "goal": "All games", "goal-games": "Each game", "goal-worse": "Where ours is worse",
    "games": "Log loss of ours less the peers', tuned", "games-systems": "Systems",
}  # fmt: skip
"""The tables of the documents that the report has, too, with their headings there."""
NOWHERE = Origin("", "", "", "")

FEW = 30  # The number of rounds to tune on below which the report warns that they say little.


def notes(effort: evidence.Effort, absent: Sequence[str]) -> list[str]:
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


def as_json(results: Sequence[Result], notes: Sequence[str]) -> bytes:
    """Encode the notes and all results as JSON."""
    return msgspec.json.format(msgspec.json.encode({"notes": notes, "games": results})) + b"\n"


def page(results: Sequence[Result], notes: Sequence[str]) -> list[str]:
    """The lines of the report: its notes and all tables. `notes` are sentences made by `notes`."""
    return [
        "## Games", "",
        f"Each system is tuned on the first {evidence.TRAIN:.0%} of the rounds and scored on the "
        "others, by the same code.", "",
        *(
            f"- {note}" for note in (
                *notes, *_not_finished(results), *_few(results), *_scored(results),
                *_at_ends(results),
            )
        ), "",
        CHOSEN, "", *tables(results, notes), *parameters(results),
    ]  # fmt: skip


def tables(
    results: Sequence[Result], notes: Sequence[str], sections: Mapping[str, str] = SECTIONS
) -> list[str]:
    """These of the documents' tables, about these results, each below its heading."""
    printed = map(msgspec.to_builtins, rows(Report(list(notes), list(results))))
    own, found = made(printed, NOWHERE), list[str]()
    for section, heading in sections.items() if own else ():
        found += [f"### {heading}", "", BY_SECTION[section].explained(own), ""]
    return found


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
