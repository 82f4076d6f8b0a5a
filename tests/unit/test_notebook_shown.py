"""What notebooks show of a ladder: HTML, and plots by Matplotlib."""

import json
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import matplotlib as mpl
import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib import pyplot

from stream_rater import Ladder, MissingExtra
from stream_rater.cli import app
from stream_rater.library import plots
from stream_rater.library.tables import SHOWN_ROWS
from tests.builders.cases import cases
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


# --- HTML ----------------------------------------------------------------------------------------


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
    path = folder / "<b>.jsonl"
    path.write_text(
        json.dumps({**event(*ranked([1, 2], HOSTILE[:2])), "round_id": HOSTILE[0]}) + "\n"
        + json.dumps({"<i>": 1, "standings": [{"rank": "<i>"}]}) + "\n"
    )  # fmt: skip
    result = Ladder().rate_file(path)
    assert result.refused == 1
    return [
        ladder, ladder[name], ladder.get("<new>"), ladder.players, ladder.leaderboard(),
        ladder.what_if(HOSTILE), ladder.rate(HOSTILE[:2], round_id="<i>"), ladder.history(name),
        ladder.predict([name, others]), ladder.calibration(), result, result.refused_lines,
    ]  # fmt: skip


def test_ids_are_escaped_in_html(tmp_path: Path) -> None:
    """Of all that is shown, ids are texts and never elements. The HTML has no colour of its own,
    so it suits light and dark notebooks."""
    ours = {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    for value in shown_values(season(HOSTILE), tmp_path):
        elements = Elements(value._repr_html_())
        assert set(elements.tags) <= ours, type(value)
        assert "\x1b" not in "".join(elements.texts)
        page = value._repr_html_().lower()
        assert "background" not in page and "<style" not in page
        assert page.count("color:") == page.count("color: inherit")


def test_a_table_shows_its_rows() -> None:
    """Numbers stand to the right, texts to the left; the number of rows that are left out is
    below."""
    ladder = season([f"p{i}" for i in range(30)])
    page = ladder.leaderboard()._repr_html_()
    elements = Elements(page)
    assert elements.tags.count("tr") == 1 + SHOWN_ROWS and "… and 10 more" in elements.texts
    assert elements.texts[:3] == ["30 players", "rank", "player"]
    best = ladder.leaderboard(1).to_dicts()[0]
    assert elements.texts[elements.texts.index("1") + 1] == best["player"]
    assert f"{best['mu']:.1f}" in elements.texts
    cells = page.split("<tbody>")[1].split("</tr>")[0].split("<td ")[1:]
    assert ["left" in cell for cell in cells] == [
        False, True, False, False, False, False, False, True, False,
    ]  # fmt: skip


def test_a_ladder_shows_its_best_players() -> None:
    """Below its name and its system. An empty one has no rows."""
    ladder = season([f"p{i}" for i in range(30)])
    texts = Elements(ladder._repr_html_()).texts
    assert texts[0] == "notebook: 30 players by elo-mmr, the best 10"
    assert texts[1:] == Elements(ladder.leaderboard(10)._repr_html_()).texts[1:]
    assert Elements(Ladder()._repr_html_()).texts[0] == "notebook: 0 players by elo-mmr"


def test_a_belief_shows_its_fields() -> None:
    """Those of a newcomer, too."""
    ladder = season(["ann", "bob"])
    texts = Elements(ladder["ann"]._repr_html_()).texts
    assert texts[0] == "ann" and texts[texts.index("mu") + 1] == f"{ladder['ann'].mu:.1f}"
    assert Elements(ladder.get("eve")._repr_html_()).texts[-1] == "–"


def test_control_characters_are_not_printed() -> None:
    """Not in the line above a table either."""
    ladder = Ladder()
    text = repr(ladder.rate(["ann", "bob"], round_id="\x1b[2J"))
    assert "\x1b" not in text and text.startswith("round \\x1b[2J, ")


# --- histories -----------------------------------------------------------------------------------


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
    assert {player: len(found) for player, found in rows.items()} == {
        "ann": 3, "bob": 3, "cy": 2, "dee": 2,
    }  # fmt: skip
    for player, found in rows.items():
        assert ladder.history(player).to_dicts() == found
    assert repr(ladder.history("ann")).startswith("ann: 3 rounds\n")
    with pytest.raises(KeyError, match="'eve' has played no round here"):
        ladder.history("eve")


def test_a_history_is_that_of_the_corrected_log(tmp_path: Path) -> None:
    """A round that was voided is not in it, and later rounds are rated as without it."""
    lines: list[dict[str, Any]] = [
        {**event(*ranked([1, 2], names)), "ladder": "duel", "round_id": f"r{i}",
         "completed_at": day(i)}
        for i, names in enumerate([("ann", "bob"), ("bob", "ann"), ("ann", "cy"), ("cy", "ann")])
    ]  # fmt: skip
    voided = {"event_type": "round-voided", "ladder": "duel", "round_id": "r1"}
    edited = _file(tmp_path / "edited.jsonl", [*lines, voided])
    by_hand = _file(tmp_path / "by_hand.jsonl", [lines[0], *lines[2:]])
    ladder, same = Ladder(), Ladder()
    ladder.rate_file(edited)
    same.rate_file(by_hand)
    ladder.rate(["ann", "cy"], round_id="last")
    same.rate(["ann", "cy"], round_id="last")
    assert ladder.history("ann").round_id.tolist() == ["r0", "r2", "r3", "last"]
    assert ladder.history("ann").to_dicts() == same.history("ann").to_dicts()
    assert ladder.history("ann").mu[-1] == ladder["ann"].mu


def _file(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# --- calibration ---------------------------------------------------------------------------------


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
    path, config = _file(tmp_path / "a.jsonl", made_up()), tmp_path / "c.json"
    config.write_text(json.dumps(given))
    words = ["--train", str(train), "--variance-factor", str(factor), "--calibration"]
    done = CliRunner().invoke(app.main, ["evaluate", str(path), "--config", str(config),
                                         "--format", "json", *words])  # fmt: skip
    assert done.exit_code == 0, done.stderr
    (row,) = json.loads(done.stdout)
    parameters = dict(given)
    ladder = Ladder(parameters.pop("system"), **parameters)
    ladder.rate_file(path)
    rows = ladder.calibration(train, variance_factor=factor).to_dicts()
    assert len(rows) >= 5
    assert [{**each, "predicted": None} for each in rows] == [
        {**{name: each[name] for name in rows[0] if name != "predicted"}, "predicted": None}
        for each in row["calibration"]
    ]
    assert [each["predicted"] for each in rows] == [each["foretold"] for each in row["calibration"]]
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
        lines.append({"ladder": "l", "round_id": f"r{i}", "completed_at": day(i),
                      "standings": standings})  # fmt: skip
    return [*lines, {"event_type": "round-voided", "ladder": "l", "round_id": "r33"}]


@cases("train", [1.0, -0.1, float("nan"), "half"])
def test_a_fraction_is_below_one(train: Any) -> None:
    """One line names the argument and its range."""
    with pytest.raises(ValueError, match=r"^train: .* is not in \[0, 1\)") as error:
        Ladder().calibration(train)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="variance_factor: 0"):
        Ladder().plot_calibration(variance_factor=0)


# --- plots ---------------------------------------------------------------------------------------


def drawn(ax: Any) -> None:
    """All of it is drawn, with its texts."""
    ax.figure.canvas.draw()


def test_a_player_is_drawn_round_by_round() -> None:
    """The rating as a line, and mu with its uncertainty as an area."""
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


def test_several_players_are_drawn_over_time() -> None:
    """Each has a line, and the points of each stand in order of time."""
    ladder = season(["ann", "bob", "cy", "dee", "eve"])
    ladder.rate(["ann", "bob"], completed_at=day(3))
    ax: Any = ladder.plot(["ann", "bob"], over="time")
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
    one.rate_file(_file(tmp_path / "a.jsonl", [
        {**event(*ranked([1, 2, 3], ["ann", "bob", "cy"])), "ladder": "l", "round_id": "r"},
        {**event(*ranked([1, 2], ["ann", "bob"])), "ladder": "l", "round_id": "q"},
        {"event_type": "player-removed", "ladder": "l", "player": "bob"},
        {"event_type": "player-removed", "ladder": "l", "player": "cy"},
    ]))  # fmt: skip
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
    """No other figure is made, and the axes come back."""
    ladder = season(["ann", "bob", "cy"])
    figure, row = pyplot.subplots(1, 3)
    assert ladder.plot("ann", ax=row[0]) is row[0]
    assert ladder.plot_board(ax=row[1]) is row[1]
    assert ladder.plot_calibration(ax=row[2]) is row[2]
    assert pyplot.get_fignums() == [figure.number]


def test_a_plot_chooses_no_backend() -> None:
    """In a notebook figures appear below the cell, as the notebook has set it up."""
    mpl.use("svg")
    season(["ann", "bob"]).plot("ann")
    assert mpl.get_backend() == "svg"


def test_without_matplotlib_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each plot."""
    ladder = season(["ann", "bob"])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for plot in (lambda: ladder.plot("ann"), ladder.plot_board, ladder.plot_calibration):
        with pytest.raises(MissingExtra, match=r"^matplotlib is not .*: stream-rater\[lab\]"):
            plot()
