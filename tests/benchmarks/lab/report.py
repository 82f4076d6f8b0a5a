"""`make evidence`: writes a report with tables and figures on the rounds of a folder."""

import sys
from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import Settings
from stream_rater.evaluation.fits import System
from stream_rater.evaluation.season import sessions_of
from stream_rater.operations.input_file import RoundsFile, file_failures
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.ledger import verdicts_of_log
from stream_rater.replay.player_index import PlayerIndex
from stream_rater.runtime.trials import Where, trials_on
from stream_rater.tables.reading import AS_FOUND, Reading
from stream_rater.tables.reading import SUFFIXES as TABLES
from tests.benchmarks.lab import evidence, figures, games, kerby, peers
from tests.benchmarks.lab.evidence import THRESHOLD, DataSet, Effort, Entry
from tests.benchmarks.lab.game import games_of
from tests.benchmarks.lab.games import Saved
from tests.benchmarks.lab.peers import PeerSystem, compared_systems

MADE_UP_PARTS = ("accuracy", "farming", "sizes")  # The paper's, which made-up seasons can do.
USUAL_PARTS = (*MADE_UP_PARTS, "games")  # And the comparison with other packages.
PARTS = (*USUAL_PARTS, "kerby")  # The last one, tables of Kerby's note, only if asked for.

SUFFIXES = (".jsonl", ".jsonl.gz", *TABLES)
FARMER = "tourist"  # The player who farms in the paper. He is in the data set `codeforces`.

SAVED = "saved"  # The folder, in that of the report, of the results on games.

Loaded = tuple[DataSet, dict[str, PlayerIndex]]  # A data set, and its players by ladder.


def evidence_report(
    data: Path | None, out: Path, parts: Collection[str], systems: Sequence[str], *,
    rounds: int | None, trials: int | None, quick: bool, where: Where,
    cut: Sequence[int] = (), teams: int | None = None, season: int | None = None,
    reading: Reading = AS_FOUND, seconds_per_peer: int | None = None, whole: bool = True,
) -> None:  # fmt: skip
    """Make the parts of the report, in the folder `out`, on the files in `data`, or without it on
    made-up seasons. `where`: where trials run; `reading`: how tables are read; `seconds_per_peer`:
    for each system on a game; `whole`: play files that are cut unchanged, too. Results on games are
    kept in `out`/saved for a later call with the same rounds and effort. Raises BadConfiguration or
    Failed."""
    effort = evidence.QUICK if quick else evidence.FULL
    effort = replace(effort, rounds=rounds or effort.rounds, trials=trials or effort.trials)
    listed = () if data is None else data.iterdir()
    paths = sorted(each for each in listed if each.name.endswith(SUFFIXES))
    if data is not None and not paths:
        raise BadConfiguration(f"{data}: no file ends in {', '.join(SUFFIXES)}")
    tables = [path.name.lower().endswith(TABLES) for path in paths]
    sources = [
        RoundsFile(path, None, reading if table else AS_FOUND)
        for path, table in zip(paths, tables, strict=True)
    ]
    with file_failures(), trials_on(where) as executor:
        out.mkdir(parents=True, exist_ok=True)
        files = [
            load(path, source, effort.rounds) for path, source in zip(paths, sources, strict=True)
        ]
        report = _Report(effort, systems, executor, out, cut, teams, season, seconds_per_peer)
        report.plays_whole = whole
        report.write_parts(parts, files)
    for source in sources:
        source.mistakes.conclude()


def load(path: Path, file: RoundsFile, rounds: int | None) -> Loaded:
    """The first `rounds` rounds of a file (None: all), and its players by ladder."""
    mistakes, window = file.mistakes, Settings().duplicate_window
    # The whole file is validated: later records may correct the first `rounds` rounds.
    verdicts = verdicts_of_log(file.records, ANY_LADDER, window)
    players: dict[str, PlayerIndex] = {}
    sessions = list(
        sessions_of(file.records(), window, mistakes.add, players, rounds=rounds, verdicts=verdicts)
    )
    found = DataSet(path.name.split(".")[0], sessions)
    mistakes.valid_lines = found.rounds
    return found, players


class _Report:
    """One run of the command, with the lines of its report so far."""

    def __init__(
        self, effort: Effort, systems: Sequence[str], executor: Executor | None, out: Path,
        cut: Sequence[int] = (), teams: int | None = None, season: int | None = None,
        seconds: float | None = None,
    ) -> None:  # fmt: skip
        self._season, self._seconds = season, seconds
        self.plays_whole = True
        self._effort, self._systems, self._executor, self._out = effort, systems, executor, out
        self._cut, self._teams = cut, teams
        self._console = Console(file=sys.stderr)
        self._lines = ["# Evidence", ""]
        self._configs: dict[str, dict[str, RatingConfig]] = {}

    def write_parts(self, parts: Collection[str], files: Sequence[Loaded]) -> None:
        """Make these parts of the report. The file is written after each part."""
        data = [each for each, _ in files]
        if "accuracy" in parts:
            data = [*data, *evidence.made_up(self._effort)]
        self._write(figures.datasets(data))
        if "accuracy" in parts:
            self._accuracy(data)
        if "farming" in parts:
            self._farming(files)
        if "sizes" in parts:
            self._sizes([each for each in data if evidence.plain(each)])
        if "games" in parts:
            self._games([each for each, _ in files])
        if "kerby" in parts:
            found = kerby.columns([each for each, _ in files], self._season, self._console.log)
            self._write(kerby.tables(found))

    def _accuracy(self, data: Sequence[DataSet]) -> None:
        entries: list[Entry] = []
        for each in data:
            found = evidence.accuracy(
                each, self._systems, self._effort, self._executor, self._console.log
            )
            self._configs[each.name] = {entry.system: entry.outcome.config for entry in found}
            entries += found
        full = self._effort.synthetic == evidence.THE_PAPERS
        self._write(figures.accuracy(entries, beside_paper=full))
        self._write(figures.times(entries))

    def _farming(self, files: Sequence[Loaded]) -> None:
        self._console.log("farming")
        whole = self._effort.rounds is None or not files
        for data, players in files if whole else ():
            for each in players.values():
                if (row := each.find(FARMER)) is not None:
                    careers = evidence.farm(data, row, THRESHOLD)
                    self._write(figures.farming(careers, self._out, f"{FARMER} in {data.name}"))
                    return
        data, row = evidence.made_up_farm()
        careers = evidence.farm(data, row, evidence.MADE_UP_THRESHOLD)
        why = f"no file has {FARMER}" if whole else "only the first rounds of files are read"
        title = f"The best player of a made-up season, because {why}"
        self._console.log(title)
        self._write(figures.farming(careers, self._out, title))

    def _sizes(self, data: Sequence[DataSet]) -> None:
        if not data:
            data = evidence.made_up(self._effort)
        largest = max(data, key=lambda each: max(each.sizes(), default=0))
        tuned = self._configs.get(largest.name)
        configs = tuned or {system: evidence.first_guess(system) for system in self._systems}
        found = evidence.sizes(largest, configs, self._effort, self._console.log)
        sizes, name = self._effort.sizes, largest.name
        self._write(figures.by_size(found, sizes, self._out, name, tuned=tuned is not None))

    def _games(self, data: Sequence[DataSet]) -> None:
        absent = peers.missing()
        systems: list[System] = [
            *compared_systems(self._systems),
            *(PeerSystem(each) for each in peers.SPACES if each not in absent),
        ]
        listed = [
            game for each in data
            for game in games_of(
                each.name, each.sessions, self._cut, self._teams, whole=self.plays_whole
            )
        ]  # fmt: skip
        notes = figures.notes(self._effort, absent)
        done: list[games.Result] = []
        before = list(self._lines)
        bounds = games.Bounds(self._effort.trials, self._seconds)
        folder = self._out / SAVED
        folder.mkdir(exist_ok=True)
        work = games.compare(
            listed, systems, bounds, self._executor, self._console.log, Saved(folder)
        )
        for each in work:
            done.append(each)
            self._lines = list(before)
            self._write(figures.page(done, notes))
            (self._out / "games.json").write_bytes(figures.as_json(done, notes))

    def _write(self, lines: Sequence[str]) -> None:
        self._lines += lines
        (self._out / "report.md").write_text("\n".join(self._lines))
