"""What `stream-rater evidence` does: data in, a report with tables and figures out."""

import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from stream_rater.cli.rounds_file import RoundsFile
from stream_rater.cli.terminal import Mistakes, file_failures
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import Settings
from stream_rater.evaluation import peers
from stream_rater.evaluation.contestants import Peer, System, compared
from stream_rater.evaluation.game import games_of
from stream_rater.evaluation.research import evidence, figures, games, games_tables, kerby
from stream_rater.evaluation.research.evidence import DataSet, Effort, Entry
from stream_rater.evaluation.research.farming import THRESHOLD
from stream_rater.evaluation.season import sessions_of
from stream_rater.evaluation.tuning import MissingExtra
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.corrected import judged
from stream_rater.replay.player_index import PlayerIndex

SUFFIXES = (".jsonl", ".jsonl.gz")
FARMER = "tourist"
"""Whom the paper has farm; he is in `codeforces`."""

Loaded = tuple[DataSet, dict[str, PlayerIndex]]


class Work:
    """One run: what to do, and the report as it grows."""

    def __init__(
        self, effort: Effort, systems: Sequence[str], workers: int, out: Path,
        cut: Sequence[int] = (), teams: int | None = None, season: int | None = None,
    ) -> None:  # fmt: skip
        self._season = season
        self._effort, self._systems, self._workers, self._out = effort, systems, workers, out
        self._cut, self._teams = cut, teams
        self._console = Console(file=sys.stderr)
        self._lines = ["# Evidence", ""]
        self._configs: dict[str, dict[str, RatingConfig]] = {}

    def do(self, parts: Collection[str], files: Sequence[Loaded]) -> None:
        """All the parts; the report is written after each."""
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
                each, self._systems, self._effort, self._workers, self._console.log
            )
            self._configs[each.name] = {entry.system: entry.outcome.config for entry in found}
            entries += found
        full = self._effort.synthetic == evidence.THE_PAPERS
        self._write(figures.accuracy(entries, beside_paper=full))
        self._write(figures.times(entries))

    def _farming(self, files: Sequence[Loaded]) -> None:
        self._console.log("farming")
        for data, rolls in files:
            row = next((row for each in rolls.values() if (row := each.find(FARMER))), None)
            if row is not None and self._effort.rounds is None:
                careers = evidence.farm(data, row, THRESHOLD)
                self._write(figures.farming(careers, self._out, f"{FARMER} in {data.name}"))
                return
        data, row = evidence.made_up_farm()
        careers = evidence.farm(data, row, evidence.MADE_UP_THRESHOLD)
        self._write(figures.farming(careers, self._out, "The best player of a made-up season"))

    def _sizes(self, data: Sequence[DataSet]) -> None:
        if not data:
            data = evidence.made_up(self._effort)
        largest = max(data, key=lambda each: max(each.sizes(), default=0))
        tuned = self._configs.get(largest.name)
        configs = tuned or {system: evidence.first_guess(system) for system in self._systems}
        found = evidence.sizes(largest, configs, self._effort, self._console.log)
        told = figures.by_size(
            found, self._effort.sizes, self._out, largest.name, tuned=tuned is not None
        )
        self._write(told)

    def _games(self, data: Sequence[DataSet]) -> None:
        absent = peers.missing()
        systems: list[System] = [
            *compared(self._systems),
            *(Peer(each) for each in peers.SPACES if each not in absent),
        ]
        listed = [
            game for each in data
            for game in games_of(each.name, each.sessions, self._cut, self._teams)
        ]  # fmt: skip
        notes = games_tables.notes(self._effort, absent)
        done: list[games.Result] = []
        before = list(self._lines)
        work = games.compare(listed, systems, self._effort.trials, self._workers, self._console.log)
        for each in work:
            done.append(each)
            self._lines = list(before)
            self._write(games_tables.page(done, notes))
            (self._out / "games.json").write_bytes(games_tables.as_json(done, notes))

    def _write(self, lines: Sequence[str]) -> None:
        self._lines += lines
        (self._out / "report.md").write_text("\n".join(self._lines))


def evidence_report(
    data: Path, out: Path, parts: Collection[str], systems: Sequence[str], *,
    rounds: int | None, trials: int | None, quick: bool, workers: int,
    cut: Sequence[int] = (), teams: int | None = None, season: int | None = None,
) -> None:  # fmt: skip
    """`evidence`: its parts, on a folder's files, into a folder."""
    effort = evidence.QUICK if quick else evidence.FULL
    effort = replace(effort, rounds=rounds or effort.rounds, trials=trials or effort.trials)
    paths = sorted(each for each in data.iterdir() if each.name.endswith(SUFFIXES))
    if not paths:
        raise BadConfiguration(f"{data}: no file ends in .jsonl or .jsonl.gz")
    mistakes = [Mistakes(path) for path in paths]
    with file_failures():
        out.mkdir(parents=True, exist_ok=True)
        files = [_load(*each, effort.rounds) for each in zip(paths, mistakes, strict=True)]
        try:
            Work(effort, systems, workers, out, cut, teams, season).do(parts, files)
        except MissingExtra as error:
            raise Failed(str(error)) from None
    for each in mistakes:
        each.conclude()


def _load(path: Path, mistakes: Mistakes, rounds: int | None) -> Loaded:
    file, window = RoundsFile(path), Settings().duplicate_window
    # Before anything else: of the first rounds alone, nobody sees that others correct them.
    verdicts = judged(file.records, ANY_LADDER, window)
    rolls: dict[str, PlayerIndex] = {}
    sessions = list(
        sessions_of(file.records(), window, mistakes.add, rolls, rounds=rounds, verdicts=verdicts)
    )
    found = DataSet(path.name.split(".")[0], sessions)
    mistakes.taken = found.rounds
    return found, rolls
