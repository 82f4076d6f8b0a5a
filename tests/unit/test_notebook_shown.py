"""What notebooks show of a ladder (HTML, plots); example notebooks and the tutorial run."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot

from stream_rater import Ladder, MissingExtra
from stream_rater.library import plots
from stream_rater.library.tables import SHOWN_ROWS
from tests import notebooks, pages
from tests.builders.cases import cases
from tests.builders.commands import as_file, done
from tests.builders.lines import a_correction, a_round
from tests.notebooks import NOTEBOOKS
from tests.rounds import day, event, ranked

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$\\frac$ & \\$",
           "\x1b[2J", "_hidden", "x" * 128, "日本\u202e"]  # fmt: skip
"""Ids that would be commands to HTML, to Matplotlib or to a terminal."""


@pytest.fixture(autouse=True)
def without_display() -> Iterator[None]:
    """Figures are closed afterwards."""
    mpl.use("Agg")
    yield
    pyplot.close("all")


def season(names: list[str], rounds: int = 40) -> Ladder:
    """In which the players meet in fours."""
    ladder = Ladder()
    for i in range(rounds):
        four = [names[(i + k) % len(names)] for k in range(min(4, len(names)))]
        ladder.rate(four[:: 1 if i % 3 else -1], completed_at=day(i))
    return ladder


class Elements(HTMLParser):
    """The tags and texts of a page; fails if an element is not closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.texts, self.open = list[str](), list[str](), list[str]()
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"style", "scope"}
        self.tags.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown_values(ladder: Ladder, folder: Path) -> list[Any]:
    """A value of each kind that a notebook shows, each with a hostile id in it."""
    name, *others = HOSTILE
    result = Ladder().rate_file(as_file(folder / "<b>.jsonl", [
        event(*ranked([1, 2], HOSTILE[:2]), round_id=HOSTILE[0]),
        {"<i>": 1, "standings": [{"rank": "<i>"}]},
    ]))  # fmt: skip
    assert result.refused == 1
    return [
        ladder, ladder[name], ladder.get("<new>"), ladder.players, ladder.leaderboard(),
        ladder.what_if(HOSTILE), ladder.rate(HOSTILE[:2], round_id="<i>"), ladder.history(name),
        ladder.predict([name, others]), ladder.calibration(), result, result.refused_lines,
    ]  # fmt: skip


def test_ids_are_escaped_in_html(tmp_path: Path) -> None:
    """The HTML has no colour of its own, so it suits light and dark notebooks."""
    ours = {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    for value in shown_values(season(HOSTILE), tmp_path):
        elements = Elements(value._repr_html_())
        assert set(elements.tags) <= ours, type(value)
        assert "\x1b" not in "".join(elements.texts)
        page = value._repr_html_().lower()
        assert "background" not in page and "<style" not in page
        assert page.count("color:") == page.count("color: inherit")


def test_a_table_shows_its_rows() -> None:
    """Numbers stand to the right, texts to the left; how many rows are left out is below."""
    ladder = season([f"p{i}" for i in range(30)])
    page = ladder.leaderboard()._repr_html_()
    elements = Elements(page)
    assert elements.tags.count("tr") == 1 + SHOWN_ROWS and "… and 10 more" in elements.texts
    assert elements.texts[:3] == ["30 players", "rank", "player"]
    best = ladder.leaderboard(1).to_dicts()[0]
    assert elements.texts[elements.texts.index("1") + 1] == best["player"]
    assert f"{best['mu']:.1f}" in elements.texts
    cells = page.split("<tbody>")[1].split("</tr>")[0].split("<td ")[1:]
    assert [i for i, cell in enumerate(cells) if "left" in cell] == [1, 7] and len(cells) == 9


def test_a_ladder_shows_its_best_players() -> None:
    """Below its name and its system. A belief shows its fields, those of a newcomer, too."""
    ladder = season([f"p{i}" for i in range(30)])
    texts = Elements(ladder._repr_html_()).texts
    assert texts[0] == "notebook: 30 players by two-moment, the best 10"
    assert texts[1:] == Elements(ladder.leaderboard(10)._repr_html_()).texts[1:]
    assert Elements(Ladder()._repr_html_()).texts[0] == "notebook: 0 players by two-moment"
    texts = Elements(ladder["p1"]._repr_html_()).texts
    assert texts[0] == "p1" and texts[texts.index("mu") + 1] == f"{ladder['p1'].mu:.1f}"
    assert Elements(ladder.get("eve")._repr_html_()).texts[-1] == "–"


def test_a_history_has_what_each_round_gave() -> None:
    """The results of `rate`, also of teams and of those who did not finish."""
    ladder, rows = Ladder(), dict[str, list[dict[str, Any]]]()
    given: list[Any] = [
        (["ann", "bob"], [1, 2]), ([("ann", "cy"), "bob", "dee"], [2, 1, None]),
        (["bob", "cy"], [1, 2]), (["dee", "ann"], [None, None]), (["dee", "ann"], [1, None]),
    ]  # fmt: skip
    for i, (sides, ranks) in enumerate(given):
        of_round = {"round_id": f"r{i}", "completed_at": f"{day(i)[:19]}Z"}
        for row in ladder.rate(sides, ranks, completed_at=day(i), round_id=f"r{i}").to_dicts():
            del row["side"]
            rows.setdefault(row.pop("player"), []).append(of_round | row)
    assert [len(rows[each]) for each in ("ann", "bob", "cy", "dee")] == [3, 3, 2, 2]
    for player, found in rows.items():
        assert ladder.history(player).to_dicts() == found
    assert repr(ladder.history("ann")).startswith("ann: 3 rounds\n")
    with pytest.raises(KeyError, match="'eve' has played no round here"):
        ladder.history("eve")


def test_a_history_is_that_of_the_corrected_log(tmp_path: Path) -> None:
    """A round that was voided is not in it, and later rounds are rated as without it."""
    pairs = [("ann", "bob"), ("bob", "ann"), ("ann", "cy"), ("cy", "ann")]
    lines = [a_round(i, *names) for i, names in enumerate(pairs)]
    ladder, same = Ladder(), Ladder()
    voided = a_correction("round-voided", round_id="r1")
    ladder.rate_file(as_file(tmp_path / "edited.jsonl", [*lines, voided]))
    same.rate_file(as_file(tmp_path / "by_hand.jsonl", [lines[0], *lines[2:]]))
    for each in (ladder, same):
        each.rate(["ann", "cy"], round_id="last")
    assert ladder.history("ann").round_id.tolist() == ["r0", "r2", "r3", "last"]
    assert ladder.history("ann").to_dicts() == same.history("ann").to_dicts()
    assert ladder.history("ann").mu[-1] == ladder["ann"].mu


@cases("given, train, factor", [
    ({"system": "elo-mmr", "weight_limit": 0.2, "sigma_limit": 80.0}, 0.1, 1.0),
    ({"system": "trueskill", "beta": 200.0, "sigma_drift": 10.0, "draw_margin": 40.0}, 0.3, 1.7),
    ({"system": "elo", "learning_rate": 40.0, "scale": 174.0, "fixed": ["p1"]}, 0.0, 0.6),
    ({"system": "glicko", "beta": 200.0, "sigma_drift": 35.0, "skip_all_tied": True}, 0.3, 0.6),
])  # fmt: skip
def test_the_calibration_is_that_of_evaluate(
    given: dict[str, Any], train: float, factor: float, tmp_path: Path
) -> None:
    """For the same rounds, number by number; with draws, teams and corrections."""
    path, config = as_file(tmp_path / "a.jsonl", made_up()), tmp_path / "c.json"
    config.write_text(json.dumps(given))
    (row,) = json.loads(done(
        "evaluate", path, "--config", config, "--format", "json", "--calibration",
        "--train", train, "--variance-factor", factor,
    ))  # fmt: skip
    ladder = Ladder(**given)
    ladder.rate_file(path)
    rows = ladder.calibration(train, variance_factor=factor).to_dicts()
    assert len(rows) >= 5
    for ours, theirs in zip(rows, row["calibration"], strict=True):
        predicted = {"predicted": theirs["foretold"]}
        assert ours == {name: theirs.get(name) for name in ours} | predicted
    drawn: Any = ladder.plot_calibration(train, variance_factor=factor).lines[1]
    assert drawn.get_xdata().tolist() == [each["foretold"] for each in row["calibration"]]
    assert drawn.get_ydata().tolist() == [each["won"] for each in row["calibration"]]


def made_up() -> list[dict[str, Any]]:
    """Rounds of eight players in teams and alone, with ties, and one round that is voided."""
    rng, lines = np.random.default_rng(5), list[dict[str, Any]]()
    for i in range(150):
        names = [f"p{k}" for k in rng.permutation(8)[: 2 + i % 4]]
        places = np.argsort(np.argsort([int(name[1:]) * 60 + rng.normal(0, 150) for name in names]))
        ranks = [1 if i % 7 == 0 else int(place) + 1 for place in places]
        standings = [
            {"team": [name, f"{name}-mate"], "rank": rank} if i % 5 == 0
            else {"player": name, "rank": rank}
            for name, rank in zip(names, ranks, strict=True)
        ]  # fmt: skip
        lines.append(a_round(i, standings=standings))
    return [*lines, a_correction("round-voided", round_id="r33")]


@cases("train", [1.0, -0.1, float("nan"), "half"])
def test_a_fraction_is_below_one(train: Any) -> None:
    with pytest.raises(ValueError, match=r"^train: .* is not in \[0, 1\)") as error:
        Ladder().calibration(train)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="variance_factor: 0"):
        Ladder().plot_calibration(variance_factor=0)


# --- plots ---------------------------------------------------------------------------------------


def drawn(ax: Any) -> None:
    ax.figure.canvas.draw()


def test_players_are_drawn() -> None:
    """One player by round, with mu and an area of its uncertainty; several by time, in order."""
    ladder = season(["ann", "bob", "cy", "dee", "eve"])
    history = ladder.history("ann")
    ax: Any = ladder.plot("ann")
    drawn(ax)
    (line,) = ax.lines
    assert np.array_equal(line.get_xdata(), history.rounds)
    assert np.array_equal(line.get_ydata(), history.rating)
    (area,) = ax.collections
    corners = area.get_paths()[0].vertices
    assert corners[:, 1].max() == (history.mu + history.sigma).max()
    assert corners[:, 1].min() == (history.mu - history.sigma).min()
    assert ax.get_title() == "ann" and ax.get_xlabel() == "own round"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["rating", "mu ± sigma"]
    ladder.rate(["ann", "bob"], completed_at=day(3))
    ax = ladder.plot(["ann", "bob"], over="time")
    drawn(ax)
    assert [line.get_label() for line in ax.lines] == ["ann", "bob"]
    for line in ax.lines:
        at = np.array(line.get_xdata())
        assert (at[1:] >= at[:-1]).all() and at.dtype == np.dtype("datetime64[s]")
    with pytest.raises(ValueError, match="over: 'days' is neither 'rounds' nor 'time'"):
        ladder.plot("ann", over="days")  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="'zoe' has played no round here"):
        ladder.plot(["ann", "zoe"])


def test_a_board_is_drawn_from_the_best_down() -> None:
    """Ratings as points beside the ranks and ids, and mu with its uncertainty as a line."""
    ladder = season([f"p{i}" for i in range(30)], rounds=60)
    board = ladder.leaderboard(12)
    ax: Any = ladder.plot_board(12)
    drawn(ax)
    (points,) = ax.lines
    assert np.array_equal(points.get_xdata(), board.rating)
    names = [f"{rank}. {name}" for rank, name in zip(board.rank, board.player, strict=True)]
    assert [text.get_text() for text in ax.get_yticklabels()] == names
    bottom, top = ax.get_ylim()
    assert bottom > top
    ends = np.array([each.vertices[:, 0] for each in ax.collections[0].get_paths()])
    assert np.array_equal(ends, np.column_stack([board.mu - board.sigma, board.mu + board.sigma]))


def test_hostile_ids_are_drawn_as_texts() -> None:
    """Not as formulas. They are cut, and none is left out of a legend."""
    ladder = season(HOSTILE)
    drawn(ladder.plot_board())
    for name in HOSTILE:
        drawn(ladder.plot(name))
    ax: Any = ladder.plot(HOSTILE)
    drawn(ax)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(texts) == len(HOSTILE) + 1 and " _hidden" in texts
    assert f"{'x' * (plots.LONGEST_NAME - 1)}…" in texts and "\\x1b[2J" in texts


def test_a_ladder_of_nobody_or_one_player_is_drawn(tmp_path: Path) -> None:
    """There is nothing, or one point, in the axes."""
    empty, one = Ladder(), Ladder()
    removed = [a_correction("player-removed", player=each) for each in ("bob", "cy")]
    lines = [a_round(1, "ann", "bob", "cy"), a_round(2, "ann", "bob"), *removed]
    one.rate_file(as_file(tmp_path / "a.jsonl", lines))
    for ladder in (empty, one):
        drawn(ladder.plot_board())
        drawn(ladder.plot_calibration())
        drawn(ladder.plot([]))
        drawn(ladder.plot(list(ladder)))
    two = Ladder()
    two.rate(["ann", "bob"])
    for over in get_args(plots.Over):
        drawn(two.plot("ann", over=over))
    drawn(two.plot_board(1))
    drawn(two.plot_board(None))


def test_systems_without_sigma_have_no_area() -> None:
    """Their sigma is that of newcomers for ever, and says nothing."""
    ladder = Ladder("elo", learning_rate=32.0, scale=174.0)
    ladder.rate(["ann", "bob"])
    axes: list[Any] = [ladder.plot("ann"), ladder.plot_board()]
    for ax in axes:
        drawn(ax)
        assert not ax.collections
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["rating"]


def test_axes_of_the_caller_are_drawn_into() -> None:
    """No other figure is made, the axes are returned, and the backend stays."""
    mpl.use("svg")
    ladder = season(["ann", "bob", "cy"])
    figure, row = pyplot.subplots(1, 3)
    assert ladder.plot("ann", ax=row[0]) is row[0]
    assert ladder.plot_board(ax=row[1]) is row[1]
    assert ladder.plot_calibration(ax=row[2]) is row[2]
    assert pyplot.get_fignums() == [figure.number] and mpl.get_backend() == "svg"


def test_without_matplotlib_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    ladder = season(["ann", "bob"])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for plot in (lambda: ladder.plot("ann"), ladder.plot_board, ladder.plot_calibration):
        with pytest.raises(MissingExtra, match=r"^matplotlib is not .*: stream-rater\[lab\]"):
            plot()


# --- example notebooks and the tutorial -----------------------------------------------------------


@pytest.mark.slow
@cases("path", NOTEBOOKS)
def test_it_shows_what_is_stored(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder, without a network. No cell prints a warning."""
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = notebooks.executed(path, tmp_path)
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", [])]
    printed = "".join(each.text for each in outputs if each.get("name") == "stderr")
    assert "Warning" not in printed and "Error" not in printed
    assert notebooks.texts_of(notebook) == notebooks.texts_of(notebooks.read(path))


CELL = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
"""A block of Python, and the one right below it with what it prints."""


def run(cell: str, names: dict[str, Any]) -> None:
    """As a notebook does: what the last line is, is shown."""
    tree = ast.parse(cell)
    shown = [tree.body.pop()] if isinstance(tree.body[-1], ast.Expr) else []
    exec(compile(tree, "cell", "exec"), names)
    exec(compile(ast.Interactive(shown), "cell", "single"), names)


def cells(of: str) -> list[tuple[str, str]]:
    """(code, what it shows) of each cell."""
    found = CELL.findall(of)
    assert len(found) == len(pages.blocks(of, "python"))
    return found


def test_the_tutorial_shows_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each cell of the page after the other, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = cells((pages.DOCS / "notebook.md").read_text())
    assert len(printed) >= 10
    for code, shown in printed:
        run(code, names)
        assert capsys.readouterr().out == shown, code
