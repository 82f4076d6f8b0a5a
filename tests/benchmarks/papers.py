"""`papers`: the figures of the Elo-MMR paper (Tables 2 and 3, Figures 2 and 3) and of Kerby's note
beside ours. The key of a figure is the name of its line, and a word for its column."""

from collections.abc import Callable, Mapping
from functools import cache

from stream_rater.runtime.trials import trials_on
from tests.benchmarks.lab import evidence, kerby
from tests.benchmarks.lab.evidence import FARMING_SYSTEMS, HARVEST, THRESHOLD
from tests.benchmarks.lab.figures import PUBLISHED
from tests.benchmarks.lab.report import FARMER, Loaded, RoundsFile, load
from tests.benchmarks.measure import Effort, Result, result, shared

SYSTEMS = ("codeforces", "topcoder", "trueskill", "elo-mmx", "elo-mmr", "two-moment")
FARMED = ("codeforces", "trueskill", "elo-mmx", "two-moment", "glicko2")  # Beside the paper's two.
SPLIT_ROUNDS = 300  # The first ones of Codeforces, which are dealt into small rounds (Figure 3).
SEASON_1 = 749  # Rounds of Map Rando: the file does not say where its first season ends.
FULL = evidence.Effort(None, 60, (5, 20, 100, 500), evidence.THE_PAPERS)


def _result(name: str, unit: str, lines: Mapping[str, Mapping[str, float | None]]) -> Result:
    keyed = {f"{line} {key}": each for line, own in lines.items() for key, each in own.items()}
    figures = {key: each for key, each in keyed.items() if each is not None}  # the first stands out
    return result(f"papers/{name}", next(iter(figures.values())), unit, figures)


@cache
def _file(name: str, rounds: int | None = None) -> Loaded:
    path = shared(name)
    return load(path, RoundsFile(path), rounds)


@cache
def _scored(name: str, effort: Effort) -> list[evidence.Entry]:
    """Every system, tuned on the first tenth of a file or of a made-up season."""
    bounds = evidence.QUICK if effort.quick else FULL
    made_up = {each.name: each for each in evidence.made_up(bounds)}
    data = made_up.get(name) or _file(name, bounds.rounds)[0]
    with trials_on(2) as executor:
        return evidence.accuracy(data, SYSTEMS, bounds, executor, lambda _: None)


def accuracy(effort: Effort) -> Result:
    """Tables 2 and 3. The words for columns begin with the name of the data."""
    lines = {system: dict[str, float | None]() for system in SYSTEMS}
    for name in PUBLISHED["paper"]:
        for each in _scored(name, effort):
            pair, rank = each.measures["pair_inversion"], each.measures["rank_deviation"]
            own = {"pair": pair, "rank": rank, "s": each.outcome.rating_s}
            for source in ("paper", "preprint"):
                theirs = PUBLISHED[source].get(name, {}).get(each.system, ())
                own |= {f"{source}_{key}": v for key, v in zip(tuple(own), theirs, strict=False)}
            lines[each.system] |= {f"{name}_{key}": value for key, value in own.items()}
    return _result("accuracy", "%", lines)


def farming(effort: Effort) -> Result:
    """Figure 2: the results of the farmer, whom the ratings of Topcoder guide, by each system."""
    data, players = _file("codeforces")
    (row,) = (row for each in players.values() if (row := each.find(FARMER)) is not None)
    systems = {} if effort.quick else {each: evidence.first_guess(each) for each in FARMED}
    careers = evidence.compare(data.sessions, row, FARMING_SYSTEMS | systems, THRESHOLD)
    return _result("farming", "points", {
        name: {"honest": each.honest[-1], "farmed": each.farmed[-1], "gain": each.gain,
               "harvest": each.farmed[-1] - each.farmed[-1 - HARVEST],
               **PUBLISHED["farming"].get(name, {})}
        for name, each in careers.items()
    })  # fmt: skip


def sizes(effort: Effort) -> Result:
    """Figure 3: pair inversion by the size of rounds, with the parameters of `accuracy`."""
    bounds = evidence.QUICK if effort.quick else FULL
    configs = {each.system: each.outcome.config for each in _scored("codeforces", effort)}
    data, _ = _file("codeforces", bounds.rounds or SPLIT_ROUNDS)
    found, at = evidence.sizes(data, configs, bounds, lambda _: None), [*map(str, bounds.sizes)]
    return _result("sizes", "%", {k: dict(zip(at, v, strict=True)) for k, v in found.items()})


def kerbys(_: Effort) -> Result:
    first, later = kerby.columns([_file("map-rando")[0]], SEASON_1, lambda _: None)
    return _result("kerby", "tau", {
        name: {"1": first.taus[name], "later": later.taus[name],
               "note_1": each.season_1, "note_later": each.later}
        for name, each in kerby.METHODS.items()
    })  # fmt: skip


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    "papers/accuracy": accuracy, "papers/farming": farming, "papers/sizes": sizes,
    "papers/kerby": kerbys,
}  # fmt: skip
