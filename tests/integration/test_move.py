"""`move` on real servers: a data file becomes topics and a Redis, and no rating changes."""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from stream_rater.adapters.kafka.copier import Copier, delete_topics
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.sqlite.reading import DataFile
from stream_rater.adapters.sqlite.season_file import SeasonRows
from stream_rater.config.settings import Settings
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.contract.record import Record
from stream_rater.operations.move import Move, move
from tests import real
from tests.builders.rated_data_files import rate
from tests.integration.erasing import Start, beliefs, season
from tests.integration.processes import complaints, stream_rater
from tests.integration.test_corrections import RANKED, a_round, correct, rated, verified
from tests.integration.topics import Bytes, headers_of, read_topic, remove_topic


def of_file(path: Path) -> Settings:
    return Settings(data=str(path))


def submit(path: Path, records: Iterable[Bytes]) -> None:
    """Append rounds to a data file."""
    lines = path.with_name("rounds.jsonl")
    lines.write_bytes(b"".join((each.value or b"") + b"\n" for each in records))
    done = stream_rater("submit", str(lines), settings=of_file(path))
    assert done.returncode == 0, done.stderr


def corrected(path: Path, *words: str) -> None:
    """Append a correction to a data file."""
    done = stream_rater("correct", *words, settings=of_file(path))
    assert done.returncode == 0, done.stderr


def with_a_past(path: Path) -> None:
    """Rate a season with duplicates, a refused correction, corrections, one of which waits, and the
    start of a season."""
    rate(path)
    submit(path, [*season(0, 60), *season(0, 4), a_round(60, "walter", "p1")])
    rate(path)
    corrected(path, "void", RANKED, "r11")
    corrected(path, "void", RANKED, "nothing")
    corrected(path, "merge", RANKED, "walter", "p2")
    rate(path)
    submit(path, season(61, 9))
    corrected(path, "season", RANKED, "1", "--keep", "0.8", "--sigma", "100")
    corrected(path, "remove", RANKED, "p6", "--batched")
    submit(path, season(70, 12))
    rate(path)


def moved(at: Settings, path: Path) -> str:
    done = stream_rater("move", str(path), settings=at)
    assert (done.returncode, complaints(done.stderr)) == (0, []), done.stdout + done.stderr
    return done.stdout


def refused(at: Settings, path: Path) -> str:
    """What one line says."""
    ended = stream_rater("move", str(path), settings=at)
    lines = complaints(ended.stderr)
    assert ended.returncode in (1, 2) and len(lines) == 1, ended.stdout + ended.stderr
    return lines[0]


def check_copied(at: Settings, file: DataFile) -> None:
    """Each accepted record is where it was, with key and headers; the others are empty. So are the
    last event of each player, and the ladder events."""
    topics = Topics.of(at)
    assert Admin(at).all_ends(topics.rounds) == file.ends()
    rejected = {(r.record.partition, r.record.offset) for _, r in file.rejections(0)}
    assert len(rejected) == 5
    copied = {(m.partition(), m.offset()): m for m in read_topic(at, topics.rounds)}
    for each in file.all_rounds():
        message = copied[each.partition, each.offset]
        if (each.partition, each.offset) in rejected:
            assert not message.value()
        else:
            assert (message.key(), message.value()) == (each.key, each.value)
            assert dict(headers_of(message)) == dict(each.headers)
    events = {event.key: event.value for _, event in file.events(0, 0)}
    messages = read_topic(at, topics.changed)
    assert {message.key(): message.value() for message in messages} == events
    assert len(messages) == len(events)
    notes = [message.value() for message in read_topic(at, topics.ladder_events)]
    assert notes[: len(file.ladder_events())] == file.ladder_events()


def newest(at: Settings) -> int:
    """The largest offset of an event's round."""
    messages = read_topic(at, Topics.of(at).changed)
    return max(rating_changed_from_json(each.value() or b"").offset for each in messages)


def test_a_file_is_moved(
    settings: real.SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """To as many partitions and any number of shards. Workers go on from there: with rounds, a
    correction of an old round, and the one that waited. The file is not used any more."""
    path, at = tmp_path / "ratings.db", settings(shards=3)
    with_a_past(path)
    file = DataFile(path)
    before = {player: data for some in file.beliefs() for player, data in some}
    assert "equal to those in" in moved(at, path)
    check_copied(at, file)
    assert beliefs(at).keys() == before.keys()
    assert "all equal" in verified(at)

    worker_process(at)
    rated(at, *season(100, 24))
    correct(at, "void", RANKED, "r12")
    correct(at, "apply", RANKED)
    assert "all equal" in verified(at)
    assert newest(at) >= min(end for end in file.ends() if end)
    file.close()

    assert "was moved to " in refused(at, path)
    ended = stream_rater("verify", settings=of_file(path))
    assert ended.returncode == 1 and "was moved to " in ended.stderr


def test_past_seasons_are_moved(settings: real.SettingsFactory, tmp_path: Path) -> None:
    """The topic has the records of the file, byte for byte; and so has one that the command writes
    from the moved log."""
    path, at = tmp_path / "ratings.db", settings(shards=3)
    with_a_past(path)
    done = stream_rater("season-standings", RANKED, settings=of_file(path))
    assert done.returncode == 0, done.stderr
    kept = {message.key: message.value for message, _ in SeasonRows(path).all_records()}
    assert len(kept) > 5
    moved(at, path)
    for _ in range(2):
        messages = read_topic(at, topic_of(at))
        assert {message.key(): message.value() for message in messages} == kept
        assert len(messages) == len(kept)
        again = stream_rater("season-standings", RANKED, settings=at)
        assert "season 0: kept before" in again.stdout, again.stderr
        remove_topic(at, topic_of(at))
        written = stream_rater("season-standings", RANKED, settings=at)
        assert written.returncode == 0, written.stderr


class Cut(Exception):
    """The end of a move that is interrupted."""


def cut(*_: object) -> None:
    """End the move."""
    raise Cut


def test_an_interrupted_move_is_repeated(
    settings: real.SettingsFactory, generation: Callable[..., Settings], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Wherever it ends before the last step: to other topics, or to the same once they are
    deleted. The file can be used until then."""
    path, at = tmp_path / "ratings.db", settings(shards=2)
    with_a_past(path)
    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(Copier, "write", cut)
        move(at, path)
    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(Move, "rebuild", cut)
        move(at, path)
    assert "holds records, or once had some" in refused(at, path)
    delete_topics(at, Admin(at).partitions())
    to = generation(at)
    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr("stream_rater.operations.move.difference", cut)
        move(to, path)
    rate(path)
    to = generation(at, "v3")
    moved(to, path)
    assert "all equal" in verified(to)


def test_what_cannot_be_moved_is_refused(
    settings: real.SettingsFactory, generation: Callable[..., Settings], tmp_path: Path
) -> None:
    """Unrated records, another window, other partitions, topics in use, a Redis in use; each with
    its cure. The file stays as it is."""
    path, at = tmp_path / "ratings.db", settings()
    rate(path)
    submit(path, season(0, 4))
    assert f"{path}: 4 records not rated yet: let `stream-rater standalone" in refused(at, path)
    rate(path)
    other = msgspec.structs.replace(at, duplicate_window=7)
    assert "it was begun with duplicate_window = 100000" in refused(other, path)
    Admin(at).create_topics()
    assert f"partitions, and {path} has 3: delete it" in refused(at, path)
    Copier(at, Topics.of(at).rounds).write([Record(0, 0, b"x")])
    assert "holds records, or once had some: name another" in refused(at, path)
    to = generation(at)
    with connect(at) as client:
        client.hset("{0}:position", "applied", 1)
        assert "holds ratings: name another one, or empty it" in refused(to, path)
        client.delete("{0}:position")
    moved(to, path)
