"""Tables in: what is made of CSV files, what they are asked, and how mistakes in them are shown."""

import gzip
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from local.tools import ROOT
from stream_rater.tables import names
from stream_rater.tables.csv_rows import MOST_LINES
from tests.builders.cases import cases
from tests.builders.commands import done, failed, run

FOOTBALL = """\
Div,Date,Time,HomeTeam,AwayTeam,FTHG,FTAG,FTR,HTHG,Referee
E0,16/08/2024,20:00,Man United,Fulham,1,0,H,0,R Jones
E0,17/08/2024,12:30,Ipswich,Liverpool,0,2,A,0,T Robinson
E0,17/08/2024,15:00,"Nott'm Forest",Bournemouth,1,1,D,1,M Oliver
,,,,,,,,,
"""
ATP = """\
tourney_id,tourney_date,match_num,winner_id,winner_name,loser_id,loser_name,score,round,loser_rank
2020-8888,20200106,300,104925,Novak Djokovic,104745,Rafael Nadal,6-2 7-6(4),F,2
2020-8888,20200106,299,104925,Novak Djokovic,106421,Daniil Medvedev,6-1 5-7 6-4,SF,2
"""
LONG = """\
round,player,rank,time
r1,ann,1,2026-01-01
r2,bob,1,2026-01-03
r1,bob,2,2026-01-01
r2,cy,DNF,2026-01-03
"""


def table(folder: Path, text: str | bytes, name: str = "a.csv") -> str:
    data = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    return str(folder / name)


def events(folder: Path, text: str | bytes, *words: str, name: str = "a.csv") -> list[Any]:
    """The events that `convert` makes of a table without mistakes."""
    found = run("convert", table(folder, text, name), "-", *words)
    assert found.exit_code == 0, found.stderr
    return [json.loads(line) for line in found.stdout.splitlines()]


def entry(player: str, rank: int, **fields: Any) -> dict[str, Any]:
    return {"player": player, "rank": rank, **fields}


def test_tennis(tmp_path: Path) -> None:
    """The winner may be an id or a name, which is asked. The id of a match has two columns."""
    found = events(tmp_path, ATP, "--columns", "winner=winner_id,loser=loser_id", name="atp.csv")
    assert [each["round_id"] for each in found] == ["2020-8888-300", "2020-8888-299"]
    assert found[0]["standings"] == [entry("104925", 1), entry("104745", 2)]
    assert (found[0]["ladder"], found[0]["completed_at"]) == ("atp", "2020-01-06T00:00:00Z")


def test_it_says_how_it_was_read(tmp_path: Path) -> None:
    """In one line, with the columns that are not used."""
    path = table(tmp_path, FOOTBALL, "football.csv")
    assert run("rate", path).stderr.partition("\n")[0] == (
        f"{path}: a row a match: home = HomeTeam, home_score = FTHG, away = AwayTeam, away_score = "
        "FTAG, ladder = Div, time = Date+Time, result = FTR; not used: HTHG, Referee"
    )
    path = table(tmp_path, LONG)
    assert run("rate", path).stderr.partition("\n")[0] == (
        f"{path}: a row an entry: round = round, time = time, player = player, rank = rank; "
        "ladder: a"
    )


def test_entries_of_a_round_need_not_be_adjacent(tmp_path: Path) -> None:
    """And rounds are in order of time, with ties in the order of the table."""
    found = events(tmp_path, LONG + "r3,x,1,2026-01-02\nr3,y,2,2026-01-02\n")
    assert [each["round_id"] for each in found] == ["r1", "r3", "r2"]
    assert found[2]["standings"] == [entry("bob", 1), {"player": "cy", "dnf": True}]


HEAD = "round,player,score\n"


@cases("text, words, ranks", [
    ("player,opponent,outcome\nann,bob,W\nann,bob,draw\nann,bob,L\n", (), [(1, 2), (1, 1), (2, 1)]),
    ("home,away,score\nann,bob,10-9\nann,bob,2:3\n", (), [(1, 2), (2, 1)]),
    ("team1,team2,winner\nann,bob,bob\nann,bob,draw\nann,bob,ann\n", (), [(2, 1), (1, 1), (1, 2)]),
    ("team1,team2,winner\nD,H,H\nD,H,D\n", (), [(2, 1), (1, 2)]),
    ("p1,p2,p3,score1,score2,score3\na,b,c,5,9,5\na,b,,1,2,\n", (), [(2, 1, 2), (2, 1)]),
    ("p1,p2,score1,score2\na,b,5,9\n", ("--score", "low"), [(1, 2)]),
    ("p1,p2,p3,place1,place2,place3\na,b,c,2,1,DNF\n", (), [(2, 1, None)]),
    ("home,away,FTHG,FTAG,result\na,b,1,1,H\n", (), [(1, 2)]),
    (HEAD + "r,a,1\nr,b,3\nr,c,3\n", ("--score", "high"), [(3, 1, 1)]),
    (HEAD + "r,a,1\nr,b,3\nr,c,3\n", ("--score", "low"), [(1, 2, 2)]),
    ("race,driver,pos,dnf\nr,a,1,\nr,b,,yes\n", (), [(1, None)]),
    ("Match ID;Player-Name;PLACE\nr;a;2\nr;b;1.0\n", (), [(2, 1)]),
    ("round\tplayer\trank\nr\ta\t2\nr\tb\t1\n", (), [(2, 1)]),
    ("x,y,z\nr,a,2\nr,b,1\n", ("--columns", "round=x,player=y", "--columns", "Rank=z"), [(2, 1)]),
])  # fmt: skip
def test_who_won(tmp_path: Path, text: str, words: tuple[str, ...], ranks: list[Any]) -> None:
    """By a result, the name of the winner, scores, places or ranks."""
    found = events(tmp_path, text, *words)
    assert [tuple(each.get("rank") for each in one["standings"]) for one in found] == ranks


def test_seats_scores_teams_and_weights(tmp_path: Path) -> None:
    text = "match,ladder,match_weight,team,player,score,rank,side,share\n" + "".join(
        f"m,duo,2,{row}\n" for row in ("red,a,2.5,1,R,1", "red,b,2.5,1,R,0.5", "blue,c,3,2,B,1")
    )
    assert events(tmp_path, text) == [{
        "round_id": "m", "ladder": "duo", "completed_at": "1970-01-01T00:00:00Z", "weight": 2,
        "standings": [
            {"team": ["a", "b"], "rank": 1, "shares": [1.0, 0.5], "score": 2.5, "seat": "R"},
            {"player": "c", "rank": 2, "score": 3, "seat": "B"},
        ],
    }]  # fmt: skip


@cases("given, due", [
    ("2024-08-16T20:00:00+02:00", "2024-08-16T20:00:00+02:00"),
    ("2024-08-16 20:00", "2024-08-16T20:00:00Z"),
    ("2024-08-16 20:00:01.5+02:00", "2024-08-16T18:00:01.500000Z"),
    ("2024-08-16T20:00Z", "2024-08-16T20:00:00Z"), ("2024/08/16", "2024-08-16T00:00:00Z"),
    ("2024.08.16", "2024-08-16T00:00:00Z"), ("20240816", "2024-08-16T00:00:00Z"),
    ("1723838400", "2024-08-16T20:00:00Z"), ("1723838400000", "2024-08-16T20:00:00Z"),
    ("16/08/2024", "2024-08-16T00:00:00Z"), ("08/16/2024 20:00", "2024-08-16T20:00:00Z"),
    ("16.8.64", "2064-08-16T00:00:00Z"),
])  # fmt: skip
def test_times(tmp_path: Path, given: str, due: str) -> None:
    """Each form of a time, without a zone in UTC."""
    (found,) = events(tmp_path, f"date,winner,loser\n{given},a,b\n")
    assert found["completed_at"] == due


QUESTIONS = [
    ("round,player,name,rank\n", "player may be player or name: say which, as --columns player="),
    ("round,player,score\n", "which score is better, a high or a low one? Say --score high or "
     "--score low"),
    ("round,player\n", "no column says who won: name one, as --columns rank=COLUMN"),
    ("home,away\n", "no column says who won: name one, as --columns result=COLUMN, or the scores, "
     "as --columns home_score=COLUMN,away_score=COLUMN"),
    ("p1,p2,p3,result\n", "no column says who won: name the scores, as --columns score1=COLUMN,"),
    ("player,rank\n", "no column is known as round (there are player, rank): name it, as"),
    ("home,away,white,black,result\n", "the sides of a match may be home and away or white and "
     "black: say which, as --columns home=home,away=away"),
    ("date,time,round,player,rank\n", "the time of a round may be date, or date+time: say which"),
    ("winner,loser,round\na,b,F\nc,d,F\n", "column round has 'F' in the lines 2 and 3, so it "
     "may be no id of a match: say --columns round=round if it is one, or leave it out, as "
     "--columns round="),
    ("round,player,player,rank\n", "two columns have the name 'player', columns 2 and 3"),
    ("r1,ann,1\n", ":1: no header row: the first line must name the columns, but it is 'r1', "),
    ("everything\n", ":1: one column only, 'everything': separate cells by commas"),
]  # fmt: skip


@cases("words, expected", [
    (("--columns", "player"), "give ROLE=COLUMN"),
    (("--columns", "gamer=player"), "'gamer' is no role of a column: the roles are ladder, round"),
    (("--columns", "rank=rnak"), "no column 'rnak'; the nearest name is 'rank'"),
    (("--columns", "rank=rank,rank=time"), "rank is given twice"),
    (("--columns", "result=rank"), "result is no role where a row is an entry"),
    (("--columns", "time=time:dym"), "'dym' is no form of a time: give dmy, mdy, ymd, s, ms"),
])  # fmt: skip
def test_wrong_answers(tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    """An option that the table does not fit has its own line."""
    found = run("rate", table(tmp_path, LONG), *words)
    assert (found.exit_code, found.stderr.count("\n")) == (2, 1)
    assert expected in found.stderr


@cases("link", [os.symlink, os.link, shutil.copy])
def test_nothing_is_written_over_what_is_read(tmp_path: Path, link: Any) -> None:
    """By whatever name it is given: a command says so, and the input stays. A copy is no input."""
    source = table(tmp_path, LONG)
    for words in (["convert", source], ["rate", source, "--out"]):
        (out := tmp_path / "out.jsonl").unlink(missing_ok=True)
        link(source, out)
        found = run(*words, str(out))
        if link is shutil.copy:
            assert found.exit_code == 0
        else:
            assert found.exit_code == 2 and "which is read: name another" in found.stderr
        assert Path(source).read_text() == LONG


def test_options_of_tables_are_for_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON lines name everything. What is not Parquet is one line, and so is a missing extra."""
    found = run("rate", table(tmp_path, "{}\n", "a.jsonl"), "--score", "low")
    assert (found.exit_code, "are for tables" in found.stderr) == (2, True)
    found = run("convert", table(tmp_path, "{}\n", "a.jsonl"), "-")
    assert (found.exit_code, "no table: its name must end in" in found.stderr) == (2, True)
    found = run("rate", table(tmp_path, "round,player", "a.parquet"))
    assert (found.exit_code, found.stderr.count("\n")) == (1, 1)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    found = run("rate", table(tmp_path, "", "a.parquet"))
    assert found.exit_code == 1
    assert "pyarrow is not installed: stream-rater[arrow] brings it" in found.stderr


def test_each_command_takes_the_answer_to_its_question(tmp_path: Path) -> None:
    """What reads a table has the options of tables; without a file they are refused."""
    path = table(tmp_path, "date,winner,loser\n03/04/2020,ann,bob\n")
    void = "correct", "void", "a", "a-1", "--dry-run"
    for words in (("predict", "ann", "bob"), void):
        assert "say --dates dmy or --dates mdy" in failed(*words, "--file", path)
        assert done(*words, "--file", path, "--dates", "dmy")
        said = failed(*words, "--dates", "dmy", *(["--ladder", "a"] if words != void else ()))
        assert said == "what a table needs is for --file: add it, or leave what a table needs out"


def test_the_name_of_what_is_written_says_its_form(tmp_path: Path) -> None:
    """CSV for .csv; other names of tables are refused."""
    path, out = table(tmp_path, "winner,loser\nann,bob\n"), tmp_path / "x.csv"
    done("rate", path, "--out", out)
    assert out.read_text().startswith("ladder,player,mu,")
    assert failed("rate", path, "--out", tmp_path / "x.tsv").endswith("in .csv, or in .jsonl")


UNREADABLE = [
    (b"", ": empty: the first line of a table must name its columns"),
    (b"round,player,rank\rr,a,1\r", ": its lines end in CR alone: save it with other line ends"),
    (b"ro\0und,player\n", ":1: no header row: it contains a NUL: remove it"),
]  # fmt: skip


@cases("text, expected", [*QUESTIONS, *UNREADABLE])
def test_what_is_no_table_or_may_be_two(tmp_path: Path, text: str | bytes, expected: str) -> None:
    """A question ends the command with exit code 2. What is no table is refused."""
    path = table(tmp_path, text)
    found, asked = run("rate", path), (text, expected) in QUESTIONS
    last = found.stderr.splitlines()[-1]
    assert found.exit_code == (2 if asked else 1)
    assert last.startswith(f"stream-rater: {path}{':' if asked else expected}"), last
    assert expected in last, last


GOOD = "round,player,rank,time,round_weight\ng,ann,1,2026-01-01,1\ng,bob,2,2026-01-01,1\n"


@cases("rows, expected", [
    ("r,a,1,2026-01-01", "4: malformed: 4 cells, but the header has 5"),
    ("r,a,1,2026-01-01,1,9", "4: malformed: 6 cells, but the header has 5"),
    ('r,"a"b,1,2026-01-01,1', "4: malformed: ',' expected after '\"': write a quote"),
    ("r,a\0,1,2026-01-01,1", "4: malformed: it contains a NUL: remove it"),
    ("r,,1,2026-01-01,1", "4: bad-id: column player: empty"),
    ("r,a,1,32/12/2026,1", "4: bad-time: column time: '32/12/2026' is no date"),
    ("r,a,1,2026-02-30,1", "4: bad-time: column time: '2026-02-30' is no date"),
    ("r,a,1,soon,1", "4: bad-time: column time: 'soon' is no time: give RFC 3339, a date, or"),
    ("r,a,1,12345,1", "4: bad-time: column time: '12345' is no time: seconds since 1970 have 10"),
    ("r,a,1,,1", "4: bad-time: column time: empty"),
    ('r,a,1,2026-01-01,heavy', "4: bad-weight: column round_weight: 'heavy' is no number"),
    ("r,a,1,2026-01-01,1\nr,b,2,2026-01-02,1", "5: bad-time: column time: 2026-01-02T00:00:00Z, "
     "but line 4 of the round has 2026-01-01T00:00:00Z"),
    ("r,a,1,2026-01-01,1", "4: too-few-entries: standings: 1, a round needs 2"),
    ("r,a,1,2026-01-01,1\nr,a,2,2026-01-01,1", "4: duplicate-player: player 'a' stands in"),
    ("r,a,1,1026-01-01,1\nr,b,2,1026-01-01,1", "4: bad-time: column time: before the year 1900"),
    ("r,a,1,2026-01-01,-1\nr,b,2,2026-01-01,-1", "4: bad-weight: column round_weight: -1.0 is"),
])  # fmt: skip
def test_bad_rows(tmp_path: Path, rows: str, expected: str) -> None:
    """Each is named by line and column, and counts as rejected; all others are rated."""
    path = table(tmp_path, f"{GOOD}{rows}\nh,ann,1,2026-01-05,1\nh,bob,2,2026-01-05,1\n")
    found = run("rate", path)
    shown = found.stderr.splitlines()[1:]
    assert found.exit_code == 1
    assert shown[0].startswith(f"{path}:{expected}"), shown
    assert shown[-1] == f"stream-rater: {path}: 1 round was invalid; the 2 others were taken"
    assert [json.loads(line)["rounds"] for line in found.stdout.splitlines()] == [2, 2]


def test_a_bad_row_rejects_its_round_once(tmp_path: Path) -> None:
    """All its rows go. A generated id has the row's number; a duplicate is shown by its line."""
    text = "round,player,rank\nr,a,1\nr,,2\nr,,3\nr,d,2\ns,a,1\ns,b,2\n"
    found = run("rate", table(tmp_path, text))
    assert [line.rpartition("a.csv:")[2][:8] for line in found.stderr.splitlines()[1:-1]] == [
        "3: bad-i"
    ]
    assert sorted(json.loads(line)["player"] for line in found.stdout.splitlines()) == ["a", "b"]
    found = run("convert", table(tmp_path, "winner,loser\na,b\na,\na\nc,d\n"), "-")
    ids = [json.loads(line)["round_id"] for line in found.stdout.splitlines()]
    assert ids == ["a-1", "a-4"]
    text = "match_id,date,winner,loser\nm,2026-01-02,a,b\nm,2026-01-01,a,b\n"
    found = run("rate", table(tmp_path, text))
    assert "a.csv:2: duplicate-round: round_id 'm' stands in line 3" in found.stderr


def test_members_of_a_team_agree(tmp_path: Path) -> None:
    """The cure is said: a team of a race is none. Whether a result or scores are true is open."""
    text = "race,driver,team,pos\nr,a,red,1\nr,b,red,2\nr,c,blue,3\n"
    found = run("rate", table(tmp_path, text))
    assert "3: bad-rank: column team: 'red' has another rank, score or seat than in line 2" in (
        found.stderr
    )
    found = run("rate", table(tmp_path, f"{text}s,,red,2\n"))
    assert [line.rpartition("a.csv:")[2][:2] for line in found.stderr.splitlines()[1:3]] == [
        "3:", "5:"
    ]  # fmt: skip
    (one,) = events(tmp_path, text, "--columns", "team=")
    assert [each["player"] for each in one["standings"]] == ["a", "b", "c"]
    found = run("rate", table(tmp_path, "home,away,FTHG,FTAG,FTR\na,b,1,2,H\n"))
    assert "2: bad-rank: column FTR: 'H', but the scores are 1 and 2" in found.stderr


def test_a_quoted_cell_has_several_lines(tmp_path: Path) -> None:
    """A row's line is its first; reading goes on behind an open quote."""
    text = 'winner,loser,note\na,b,"one\ntwo\nthree"\na,,x\na,b,"open\n' + "a,b,c\n" * 3
    found = run("convert", table(tmp_path, text), "-")
    assert [line.partition("a.csv:")[2] for line in found.stderr.splitlines()[1:3]] == [
        "5: bad-id: column loser: empty",
        "6: malformed: a quote is not closed: write a quote inside of a cell twice",
    ]
    assert found.stdout.count("\n") == 4
    text += 'a,b,c"\n' + "a,b,c\n" * 3 * MOST_LINES
    text = text.replace('"open\n', '"open\n' + "a,b,c\n" * MOST_LINES) + "a,,c\n"
    found = run("convert", table(tmp_path, text), "-")
    assert found.stdout.count("\n") == 5 + 4 * MOST_LINES
    assert f"a.csv:{len(text.splitlines())}: bad-id" in found.stderr


def test_a_row_has_an_end(tmp_path: Path) -> None:
    """A longer one is refused before its cells are made; the rows around it are taken."""
    long = "," * (1 << 20) + "\n"
    found = run("convert", table(tmp_path, f"winner,loser\na,b\n{long}c,d\n"), "-")
    assert found.stderr.splitlines()[1].endswith(
        "a.csv:3: malformed: more than 1,048,576 bytes: write a row for each player of a round"
    )
    assert found.stdout.count("\n") == 2
    found = run("convert", table(tmp_path, long), "-")
    assert "a.csv:1: no header row: more than 1,048,576 bytes" in found.stderr


@cases("name", ["a.csv", "a.csv.gz", "A.CSV", "a.tsv"])
def test_names_and_byte_order_marks(tmp_path: Path, name: str) -> None:
    """The ending decides, in any case; a byte order mark is no part of a name."""
    text = ("\ufeff" + LONG).replace(",", "\t" if "tsv" in name else ",")
    assert len(events(tmp_path, text, name=name)) == 2
    assert ": round = round, " in run("rate", str(tmp_path / name)).stderr


def test_ladders(tmp_path: Path) -> None:
    """A column, else --ladder, else the file's name; it must be one of the ladders."""
    ladders = tmp_path / "l.toml"
    ladders.write_text('[ladders.duel.rating]\nsystem = "elo-mmr"\nweight_limit = 0.2\n'
                       "sigma_limit = 80\n")  # fmt: skip
    path = table(tmp_path, LONG)
    found = run("rate", path, "--ladders", str(ladders))
    assert (found.exit_code, found.stderr) == (
        2, f"stream-rater: {path}: ladder 'a' is not configured: name one that is, as by --ladder "
        "duel\n",
    )  # fmt: skip
    found = run("rate", path, "--ladders", str(ladders), "--ladder", "duel")
    assert json.loads(found.stdout.splitlines()[0])["ladder"] == "duel"
    (one, _) = events(tmp_path, LONG.replace("time", "mode"), "--columns", "time=")
    assert one["ladder"] == "2026-01-01"
    (one, _) = events(tmp_path, LONG.replace("time", "mode"), "--ladder", "x")
    assert one["ladder"] == "x"


def test_strict_ladders_take_tables(tmp_path: Path) -> None:
    """A score and a seat are no unknown fields; a score that is a text is."""
    ladders = tmp_path / "l.toml"
    ladders.write_text(
        '[ladders.E0.rating]\nsystem = "elo-mmr"\nweight_limit = 0.2\nsigma_limit = 80\n'
        '[ladders.E0.limits]\nunknown_fields = "reject"\n'
    )
    found = run("rate", table(tmp_path, FOOTBALL), "--ladders", str(ladders))
    assert found.exit_code == 0, found.stderr
    bad = run("convert", table(tmp_path, FOOTBALL), "-").stdout.replace('"score":1', '"score":"1"')
    found = run("rate", table(tmp_path, bad, "a.jsonl"), "--ladders", str(ladders))
    assert "malformed: Expected `float | null`, got `str` - at `$.standings[0].score`" in (
        found.stderr
    )


def test_every_name_is_documented() -> None:
    """docs/how-to/tables.md lists the names by which columns are known."""
    page = (ROOT / "docs" / "how-to" / "tables.md").read_text(encoding="utf-8")
    text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    listed = {names.plain(each) for each in re.findall(r"`([^`]+)`", text)}
    known = {each for groups in names.ROLES.values() for group in groups for each in group.split()}
    known |= {*names.TOGETHER, *names.OF_DAY, *names.NUMBERED}
    known |= {side for pair in names.PAIRS for side in pair}
    assert known - listed == set()
