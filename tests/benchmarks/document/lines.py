"""Rows that make several lines of a table, and the figures that are computed for a line."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from stream_rater.evaluation.bootstrap import VERDICTS, verdict
from stream_rater.evaluation.fits import LOG_LOSS
from stream_rater.evaluation.measures import Difference
from tests.benchmarks.document.rows import Figures, Row, figure
from tests.benchmarks.lab import games
from tests.benchmarks.lab.forward import ORDER, ORDER_OF_ALL
from tests.benchmarks.lab.games import COMPARED
from tests.benchmarks.lab.peers import SPACES
from tests.simulation.faults import KINDS

ALL_ELSE = "everything else, the Kafka client's threads among it"
SIMULATED = {  # What a line of the simulation's table counts, by its field in the JSON object.
    "seeds": "seeds, each a simulation of its own",
    "violations": "seeds with a wrong rating, an event lost, doubled or out of order, or a round"
    " that is never rated",
    "mutants": "mutants: the protocol with one rule left out",
    "caught": "mutants caught by a scenario written for them",
    "caught_by_seeds": "mutants caught by random seeds, too",
}


def verdicts(row: Row) -> Iterator[Row]:
    """One line a game: ours, and differences to each peer, in columns as `order plain-elo`."""
    ratio, found = row.figures["ratio"], dict[str, Any]()
    for peer, wanted in product(SPACES, COMPARED):
        for measure in (wanted, ORDER_OF_ALL) if wanted == ORDER else (wanted,):
            edges = [
                ratio.get(f"{peer} {LOG_LOSS} {measure} {edge}") for edge in ("mean", "low", "high")
            ]
            if None not in edges:
                gap = Difference(*edges)
                text = f"{gap.mean:+.3g} [{gap.low:+.3g}, {gap.high:+.3g}]"
                said = verdict(measure, gap)
                found[f"{wanted} {peer}"] = {"better": text, "worse": f"**{text}**"}.get(
                    said, f"*{text}*"
                )
                break
        if (seconds := ratio.get(f"{peer} not_finished")) is not None:
            found[f"{wanted} {peer}"] = f"not finished in {seconds:,.0f} s"
    own = {key: ratio.get(f"{_ours(row)} {key}") for key in (LOG_LOSS, "calibration_error")}
    counts = "+{} ={} -{}".format(*_counts(row, _ours(row)))
    yield _line(
        row, game=_game(row), part=games.role_of(row.word(1)), counts=counts,
        note=row.figures["note"], draws=ratio.get("draws"), best=_best(row), **own, **found,
    )  # fmt: skip


def _best(row: Row) -> str:
    """The system with the least log loss on a game; if it is not ours, with its lead."""
    losses = {
        key.removesuffix(f" {LOG_LOSS}"): loss
        for key, loss in row.figures["ratio"].items()
        if key.endswith(f" {LOG_LOSS}") and len(key.split()) == 2
    }
    best = min(losses, key=lambda system: losses[system], default=_ours(row))
    if best == _ours(row):
        return best
    return f"{best}, by {losses[_ours(row)] - losses[best]:.4f}"


def _counts(row: Row, system: str) -> list[int]:
    """How many comparisons of a system have each verdict."""
    names = (f"{system} {each.replace(' ', '_')}" for each in VERDICTS)
    return [int(row.figures["ratio"].get(each, 0)) for each in names]


def systems(row: Row) -> Iterator[Row]:
    """A game's systems, with all figures of each."""
    ratio: dict[str, Any] = row.figures["ratio"]
    for system in dict.fromkeys(key.split()[0] for key in ratio if key.endswith(" us_update")):
        own = {key.split()[1]: value for key, value in ratio.items()
               if key.split()[0] == system and len(key.split()) == 2}  # fmt: skip
        counts = _counts(row, system)
        own["counts"] = "+{} ={} -{}".format(*counts) if any(counts) else None
        name = f"**{system}**" if system == _ours(row) else system
        yield _line(row, game=_game(row), system=name, note=row.figures["note"], **own)


def ablation(row: Row) -> Iterator[Row]:
    gap = Difference(row.figures["value"], *(row.figures["ratio"][e] for e in ("low", "high")))
    text = f"{gap.mean:+.2g} [{gap.low:+.2g}, {gap.high:+.2g}]"
    if gap.noise:
        text = f"*{text}*"
    elif gap.mean < 0.0:
        text = f"**{text}**"
    yield _line(row, ablated=row.figures["note"], ablation_gain=text)


def _game(row: Row) -> str:
    file, *cut = row.name.split("/")[1:]
    return f"`{file}`" + "".join(f", {each.replace('-', ' ')}" for each in cut)


def _ours(row: Row) -> str:
    return str(row.figures["note"]).removeprefix("ours: ").split(";")[0]


def steps(row: Row) -> Iterator[Row]:
    """One line for each step, and one for the time outside of all steps."""
    release = "before" if row.name.endswith("/before") else "this"
    spent = row.figures["ratio"]
    rest = float(figure(row, "value") or 0.0) - sum(spent.values())
    for step, used in (*spent.items(), (ALL_ELSE, rest)):
        yield _line(row, release=release, step=step, us=used)


def growth(row: Row) -> Iterator[Row]:
    """One line for each number of updates at which memory was measured."""
    for key, value in row.figures["ratio"].items():
        if match := re.fullmatch(r"MiB_at_(\d+)", key):
            yield _line(row, updates=int(match[1]), mib=value)


def simulated(row: Row) -> Iterator[Row]:
    for what, times in counted(row.figures):
        yield Row(what, row.origin, {"times": times})


def counted(figures: Figures) -> Iterator[tuple[str, Any]]:
    """The lines of the simulation's table: what is counted, how many."""
    yield from ((what, figures[name]) for name, what in SIMULATED.items() if name in figures)
    faults = figures["faults"]
    yield from ((what, faults[kind]) for kind, what in KINDS.items() if kind in faults)


def checks(row: Row) -> Iterator[Row]:
    """One line for each check of the image, of compose or of Kubernetes."""
    for each in row.figures["rows"]:
        yield _line(row, **{**each, "seen": str(each["seen"]).replace("|", "/")})


def _line(row: Row, **figures: Any) -> Row:
    return Row(row.name, row.origin, figures)


SPREADS: Mapping[str, Callable[[Row], Iterator[Row]]] = {
    each.__name__: each
    for each in (verdicts, systems, ablation, steps, growth, simulated, checks)
}  # fmt: skip
