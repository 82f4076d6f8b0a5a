"""`seed` and `reset`: what becomes of a table of ratings, what is sent, and what is refused."""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stream_rater import places
from stream_rater.adapters.sqlite import log
from stream_rater.adapters.sqlite.log import NewRound, SqliteLog
from stream_rater.config.ladders import ANY_LADDER, any_ladder
from stream_rater.contract import seeds as limits
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import SYSTEMS
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.sequential import Replay
from stream_rater.rounds.correction_records import decode_seed
from stream_rater.rounds.seed_records import Scale, scale_of
from tests.builders.cases import cases
from tests.builders.commands import failed, piped, run
from tests.builders.memory_places import Sent, taking
from tests.builders.rated_data_files import rate

TABLE = "player,mu,sigma,games\nann,31.4,1.9,212\nbob,25.9,2.4,98\ncy,18.2,60,4\n"


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Sent:
    return taking(monkeypatch)


def written(folder: Path, text: str, name: str = "players.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def seeds(path: Path, *options: object) -> list[dict[str, Any]]:
    out = path.parent / "seeds.jsonl"
    words = ("--ladder", "l", "--scale", "openskill", *options)
    result = run("seed", path, "--out", out, *words)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in out.read_text().splitlines()]


# --- what becomes of a player ---------------------------------------------------------------------


def test_newcomers_become_newcomers(tmp_path: Path) -> None:
    """By the affine map of the scale. A greater sigma is cut. `rate` makes the same of the file."""
    result = run("seed", written(tmp_path, TABLE), "--ladder", "l", "--scale", "openskill",
                 "--dry-run")  # fmt: skip
    assert result.exit_code == 0
    assert "the sigma of 1 player was cut to the initial 350" in result.stderr
    (seed,) = seeds(written(tmp_path, TABLE))
    assert seed["players"] == [
        {"player": "ann", "mu": 1500 + 6.4 * 42, "sigma": 1.9 * 42, "rounds": 212},
        {"player": "bob", "mu": 1500 + 0.9 * 42, "sigma": 2.4 * 42, "rounds": 98},
        {"player": "cy", "mu": 1500 - 6.8 * 42, "sigma": 350, "rounds": 4},
    ]
    assert seed["ladder"] == "l" and seed["source"] == "players.csv"
    (seed,) = seeds(written(tmp_path, TABLE))
    result = run("rate", tmp_path / "seeds.jsonl")
    rated = {each["player"]: each for each in map(json.loads, result.stdout.splitlines())}
    for each in seed["players"]:
        found = rated[each["player"]]
        assert found["mu"] == pytest.approx(each["mu"]) and found["rounds"] == each["rounds"]
        assert found["sigma"] == pytest.approx(each["sigma"])


@cases("scale, given, found", [
    ("trueskill", (25.0, 25 / 3), (1500.0, 350.0)), ("openskill", (0.0, 25 / 6), (450.0, 175.0)),
    ("glicko", (1812.5, 60.25), (1812.5, 60.25)), ("elo", (1300.0, 150.0), (1300.0, 150.0)),
    ("ladder", (1812.5, 60.25), (1812.5, 60.25)), ("1000,700", (1200.0, 70.0), (1600.0, 35.0)),
    ("25000,8333.333333333333", (25000.0, 1000.0), (1500.0, 42.0)),
])  # fmt: skip
def test_scales(scale: str, given: tuple[float, float], found: tuple[float, float]) -> None:
    """On a ladder of 1500 and 350."""
    shift, factor = scale_of(scale, ANY_LADDER.ladders["*"].rating).to(Scale(1500.0, 350.0))
    assert (shift + factor * given[0], factor * given[1]) == pytest.approx(found)


@cases("tag", SYSTEMS)
def test_every_system_takes_a_table(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those without a sigma of players leave it out."""
    rating = SYSTEMS[tag].sample()
    monkeypatch.setattr(places, "ladders_of", lambda _: any_ladder(rating))
    path, out = written(tmp_path, "player,elo\nann,1800\nbob,1200\n"), tmp_path / "seeds.jsonl"
    given = () if not rating.takes_sigma else ("--sigma", 70)
    result = run("seed", path, "--ladder", "l", "--scale", "elo", *given, "--out", out)
    assert result.exit_code == 0, result.output
    replay = Replay(any_ladder(rating), window=100)
    for batch in replay.run(records_of(iter(out.read_bytes().splitlines(keepends=True)))):
        assert not batch.log.rejected
    assert len(replay.pools["l"]) == 2


# --- tables ---------------------------------------------------------------------------------------


def tables(folder: Path) -> Iterator[Path]:
    """The same players in each format."""
    pl = pytest.importorskip("polars")
    ann, bob = ("ann", 31.4, 1.9), ("bob", 25.9, 2.4)
    frame = pl.DataFrame([ann, bob], schema=["player", "mu", "sigma"], orient="row")
    yield written(folder, frame.write_csv(separator=";"))
    renamed = frame.rename({"player": "user", "mu": "rating", "sigma": "rd"})
    yield written(folder, renamed.write_csv(separator="\t"), "p.tsv")
    lines = [json.dumps({"id": a, "elo": b, "x": {}, "deviation": c}) for a, b, c in (ann, bob)]
    yield written(folder, "\n".join(["", *lines, ""]), "p.jsonl")
    packed = folder / "p.csv.gz"
    packed.write_bytes(
        gzip.compress(frame.rename({"player": "name", "mu": "skill"}).write_csv().encode())
    )
    yield packed
    frame.write_parquet(folder / "p.parquet")
    yield folder / "p.parquet"


def test_every_format(tmp_path: Path) -> None:
    """Gives the same players, and so the same ids. Standard input has JSON lines."""
    found = [seeds(path, "--source", "s") for path in tables(tmp_path)]
    assert len(found) == 5
    assert {each[0]["round_id"] for each in found} == {found[0][0]["round_id"]}
    assert [each["player"] for each in found[0][0]["players"]] == ["ann", "bob"]
    words = ["seed", "-", "--ladder", "l", "--scale", "elo", "--out", "-"]
    out = piped('{"player":"ann","mu":1600,"sigma":50}\n', *words)
    assert json.loads(out)["players"][0]["mu"] == 1600


@cases("header, options, message", [
    ("player,rating,elo,sigma", (), "mu may be rating or elo: say which, as --columns mu=rat"),
    ("player,points,sigma", (), "no column is known as mu (there are player, points, sigma)"),
    ("player,mu", (), "no column is known as sigma, how uncertain a rating is"),
    ("player,mu,sigma", ("--columns", "mu=mi"), "no column 'mi'; the nearest name is 'mu'"),
    ("player,mu,sigma", ("--columns", "rank=mu"), "'rank' is no role of a column"),
    ("player,mu,mu,sigma", (), "two columns have the name 'mu'"),
    ("ann,1500", (), "no header row"),
    ("player,mu,sigma", ("--scale", "5,0"), "'5,0' is no scale"),
    ("player,mu,sigma", ("--scale", "x"), "'x' is no scale"),
    ("player,mu,sigma", ("--sigma", "-1"), "--sigma -1: give a number over 0"),
    ("player,mu,sigma", ("--sigma", "x"), "--sigma x: give a number"),
    ("player,mu,sigma", ("--most", "5"), "--most is for --from-ladder"),
    ("player,mu,sigma", ("--at", "today"), "players-seeded: bad-time: at: "),
    ("player,mu,sigma", ("--at", "2999-01-01T00:00:00Z"), "bad-time: at: over 86400 s ahead"),
    ("player,mu,sigma", ("--out", "x", "--undo"), "give --out or --undo"),
])  # fmt: skip
def test_what_is_open_is_asked(
    header: str, options: tuple[str, ...], message: str, tmp_path: Path, kafka: Sent
) -> None:
    """In one line, with the option that decides; nothing is sent."""
    row = ",".join(["ann", "1500", "1500", "100"][: header.count(",") + 1])
    path = written(tmp_path, f"{header}\n{row}\n")
    words = ("--ladder", "l", "--scale", "elo", "--yes")
    assert message in failed("seed", path, *words, *options)
    assert kafka.sent == []


def test_a_scale_is_needed(tmp_path: Path, kafka: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """1500 and 25 are both possible, so nothing is guessed. Of an unknown ladder, one is named."""
    assert "which scale" in failed("seed", written(tmp_path, TABLE), "--ladder", "l", "--yes")
    assert "give a table of ratings, or --from-ladder" in failed("seed", "--ladder", "l")
    undo = ("seed", "--ladder", "l", "--from-ladder", "m", "--undo")
    assert "--undo is for a table: take a seed from another ladder back" in failed(*undo)
    ladders = '[ladders.duel.rating]\nsystem = "elo-mmr"\nweight_limit = 0.2\nsigma_limit = 80\n'
    monkeypatch.setenv("STREAM_RATER_LADDERS", str(written(tmp_path, ladders, "l.toml")))
    words = ("--ladder", "duels", "--scale", "openskill", "--yes")
    line = failed("seed", written(tmp_path, TABLE), *words)
    assert line.startswith("ladder 'duels' is not configured: name one that is, as by --ladder du")
    assert kafka.sent == []


@cases("row, message", [
    ("x,1500,abc,1", "bad-seed: column sigma: 'abc' is no number"),
    ("x,nan,70,1", "bad-seed: column mu: 'nan' is no number"),
    ("x,inf,70,1", "bad-seed: column mu: 'inf' is no number"),
    ("x,,70,1", "bad-seed: column mu: empty"),
    ("x,1500,0,1", "bad-seed: column sigma: 0 is not over 0"),
    ("x,1500,-3,1", "bad-seed: column sigma: -3 is not over 0"),
    ("x,1500,,1", "bad-seed: column sigma: empty"),
    ("x,15000,70,1", "bad-seed: column mu: 15000 is not within 10500 of the initial 1500"),
    ("x,1500,70,0", "bad-seed: column games: 0 is no number of rounds from 1 on"),
    ("x,1500,70,1.5", "bad-seed: column games: 1.5 is no number of rounds"),
    ("x,1500,70,16777216", "bad-seed: column games: 16777216 is not in 1..16777214"),
    (",1500,70,1", "bad-id: column player: empty"),
    (f"{'x' * 129},1500,70,1", "bad-id: column player: over 128 bytes"),
    ("ann,1400,70,1", "bad-id: player 'ann' stands in line 2, too"),
    ("x,1500,70", "malformed: 3 cells, but the header has 4"),
])  # fmt: skip
def test_a_bad_row_stops_all(row: str, message: str, tmp_path: Path, kafka: Sent) -> None:
    """With its line, its column and the cure. On request the others are sent."""
    kafka.forget()
    path = written(tmp_path, f"player,mu,sigma,games\nann,1600,70,9\n{row}\nbob,1400,70,9\n")
    words = ("seed", path, "--ladder", "l", "--scale", "elo", "--yes")
    result = run(*words)
    assert result.exit_code == 1
    assert f"{path}:3: {message}" in result.stderr
    assert "1 row of 3 invalid: nothing was sent; --skip-invalid leaves" in result.stderr
    assert kafka.sent == []
    assert run(*words, "--skip-invalid").exit_code == 0
    ((_, kind, seed),) = kafka.sent
    assert kind == "players-seeded"
    assert [(each["player"], each["mu"]) for each in seed["players"]] == [
        ("ann", 1600.0), ("bob", 1400.0),
    ]  # fmt: skip


def test_a_row_of_json_that_is_none(tmp_path: Path) -> None:
    """A line that is no object, and one that lacks a field."""
    good = '{"player": "ann", "mu": 1600, "sigma": 70}\n'
    path = written(tmp_path, good + "[]\n" + '{"player": "bob", "sigma": 70}\n', "p.jsonl")
    result = run("seed", path, "--ladder", "l", "--scale", "elo", "--dry-run")
    assert f"{path}:2: malformed: no JSON object" in result.stderr
    assert f"{path}:3: bad-seed: column mu: empty" in result.stderr
    assert "is no table" not in result.stderr and result.exit_code == 1
    assert "empty: give a player a line" in failed(
        "seed", written(tmp_path, "\n", "n.jsonl"), "--ladder", "l", "--scale", "elo"
    )
    other = written(tmp_path, "player,mu\n", "n.txt")
    assert "no JSON object" in failed("seed", other, "--ladder", "l", "--scale", "elo")


# --- what is sent ---------------------------------------------------------------------------------


def test_seeds_are_of_bounded_size_and_have_ids_of_their_content(tmp_path: Path) -> None:
    """At most 5,000 players and 512 KiB. An id depends on content and source, not on the time."""
    names = [f"p{'x' * 100}{number}" for number in range(11_000)]
    text = "player,mu,sigma\n" + "".join(f"{name},1500,70\n" for name in names)
    found = seeds(written(tmp_path, text), "--scale", "elo")
    lines = (tmp_path / "seeds.jsonl").read_bytes().splitlines()
    assert max(map(len, lines)) <= 512 * 1024 and len(found) > 3
    assert [each["player"] for seed in found for each in seed["players"]] == names
    ids = [each["round_id"] for each in found]
    assert len(set(ids)) == len(ids)
    assert max(len(each["players"]) for each in seeds(written(tmp_path, TABLE * 1))) == 3
    again = seeds(written(tmp_path, text), "--scale", "elo", "--at", "2020-01-01T00:00:00Z")
    assert [each["round_id"] for each in again] == ids
    other = seeds(written(tmp_path, text), "--scale", "elo", "--source", "again")
    assert not {each["round_id"] for each in other} & set(ids)


def test_what_was_sent_is_what_the_service_takes(tmp_path: Path, kafka: Sent) -> None:
    """By its decoder. The command says where the seeds lie."""
    many = "player,mu,sigma\n" + "".join(f"p{number},1500,70\n" for number in range(5001))
    words = ("--ladder", "l", "--scale", "elo", "--yes")
    result = run("seed", written(tmp_path, many), *words)
    assert result.stdout.splitlines()[-1].startswith(
        "2 seeds of 5,001 players sent: partition 3, offsets 17 to 18; players who have a round or"
    )
    for offset, (ladder, kind, event) in enumerate(kafka.sent):
        headers = (("event-type", kind.encode()),)
        record = Record(0, offset, json.dumps(event).encode(), headers, received_s=2e9)
        seed = decode_seed(record, ANY_LADDER)
        assert (ladder, kind, seed.ladder) == ("l", "players-seeded", "l")
    assert [len(event["players"]) for _, _, event in kafka.sent] == [5000, 1]


def test_nothing_is_sent_without_a_yes(tmp_path: Path, kafka: Sent) -> None:
    """Where nobody can be asked, the command says so; and what failed can be sent again."""
    path = written(tmp_path, TABLE)
    words = ("seed", path, "--ladder", "l", "--scale", "openskill")
    assert "there is nobody to ask: say --yes" in failed(*words)
    assert run(*words, "--dry-run").exit_code == 0
    assert kafka.sent == []
    kafka.broken = True
    path = written(tmp_path, TABLE)
    line = failed("seed", path, "--ladder", "l", "--scale", "openskill", "--yes")
    assert "1 of 1 seed not sent" in line and "run the same command again" in line


def test_an_import_is_taken_back(tmp_path: Path, kafka: Sent) -> None:
    """By the same command with --undo: each seed is voided, all together."""
    words = ("seed", written(tmp_path, TABLE), "--ladder", "l", "--scale", "openskill", "--yes")
    assert run(*words).exit_code == 0
    assert run(*words, "--undo").exit_code == 0
    (_, _, seed), (_, void, voided), (_, apply, _) = kafka.sent
    assert (void, apply) == ("round-voided", "corrections-applied")
    assert voided["round_id"] == seed["round_id"] and voided["batched"]


# --- one player -----------------------------------------------------------------------------------


def test_a_reset(kafka: Sent) -> None:
    """Has another id at each command; if it fails, the line names it, lest it be applied twice."""
    for more in ((), (), ("--mu", "1600", "--id", "r-1", "--source", "sold")):
        assert run("reset", "l", "ann", "--sigma", 200, *more).exit_code == 0
    (first, second, third) = [event for _, kind, event in kafka.sent if kind == "player-reset"]
    assert first["round_id"] != second["round_id"] and "mu" not in first
    assert (third["round_id"], third["mu"], third["source"]) == ("r-1", 1600.0, "sold")
    kafka.forget()
    kafka.broken = True
    line = failed("reset", "l", "ann", "--sigma", 70)
    assert f"again with --id {kafka.sent[0][2]['round_id']}" in line


@cases("words, message", [
    (("l", "ann", "--sigma", 351), "player-reset: bad-seed: sigma: 351 is not over 0 and at"),
    (("l", "ann", "--sigma", "1e-9"), "player-reset: bad-seed: sigma: 1e-09 is not over 0"),
    (("l", "ann", "--sigma", 70, "--mu", "nan"), "malformed: "),
    (("l", "ann", "--sigma", 70, "--mu", 99999), "bad-seed: mu: 99999 is not within"),
    (("l", "", "--sigma", 70), "bad-id: player: empty"),
    (("l", "ann", "--sigma", 70, "--at", "x"), "bad-time: at: "),
])  # fmt: skip
def test_a_reset_that_cannot_be(words: tuple[Any, ...], message: str, kafka: Sent) -> None:
    """By the service's rules, before it is sent."""
    assert message in failed("reset", *words)
    assert kafka.sent == []


WINDOW = """
[ladders.l]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }
limits = { corrections = "refused" }
[[ladders.l.changes]]
from_offset = 10
limits = { corrections = "accepted" }
[[ladders.l.changes]]
from_offset = 20
limits = { corrections = "refused" }
"""


@cases(("end", "works"), [(9, False), (10, True), (20, False)])
def test_a_ladder_that_refuses_corrections(
    end: int, works: bool, kafka: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Takes no seed and no reset either, at the present end of its partition."""
    kafka.forget()
    monkeypatch.setenv("STREAM_RATER_LADDERS", str(written(tmp_path, WINDOW, "l.toml")))
    kafka.end = end
    words = ("seed", written(tmp_path, TABLE), "--ladder", "l", "--scale", "openskill", "--yes")
    for each in (words, ("reset", "l", "ann", "--sigma", 200)):
        result = run(*each)
        assert (result.exit_code == 0) == works
        assert works or "corrections-refused: ladder 'l' takes no corrections" in result.stderr
    assert len(kafka.sent) == 2 * works


def test_a_data_file_takes_seeds_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their bytes, so memory has no bound of its own; all of them are there, in order."""
    path, table = tmp_path / "r.db", written(tmp_path, TABLE)
    rate(path)
    found: list[int] = []
    submit_all = SqliteLog.submit_all
    monkeypatch.setattr(log, "TOGETHER_BYTES", 400)

    def counted(log: SqliteLog, new: Sequence[NewRound]) -> list[int]:
        found.append(len(new))
        return submit_all(log, new)

    monkeypatch.setattr(SqliteLog, "submit_all", counted)
    monkeypatch.setattr(limits, "MOST_PLAYERS", 1)
    words = ("seed", table, "--ladder", "l", "--scale", "openskill", "--yes", "--data", path)
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert (
        "3 seeds of 3 players sent" in result.stdout and "offsets 0 to 2; rated at" in result.stdout
    )
    assert found == [2, 1]
    rate(path)
    assert "3 seeds applied, 0 rejected, 3 beliefs compared" in run("verify", "--data", path).stdout
