"""Commands that write a data file again, killed after each of their effects."""

import itertools
from pathlib import Path

import pytest

from stream_rater.config.settings import Settings
from tests.builders.kills import halting, short
from tests.builders.rated_data_files import rate
from tests.integration.processes import complaints, environment_of, stream_rater
from tests.unit.test_data_commands import done, season, submit

EFFECTS = {
    "rebuild": [
        "stream_rater.adapters.sqlite.reading.DataFile.copy_to",
        "stream_rater.operations.rebuild_file.fill_store",
        "stream_rater.operations.rebuild.restate",
        "stream_rater.operations.verify.compared_with_replay",
        "stream_rater.adapters.sqlite.database.Database.replace_by",
    ],
    "erase": [
        "stream_rater.adapters.sqlite.log.SqliteLog.submit_all",
        "stream_rater.operations.rebuild_file.fill_store",
        "stream_rater.operations.rebuild.restate",
        "stream_rater.operations.erase_file.copy_renamed",
        "stream_rater.adapters.sqlite.database.Database.replace_by",
    ],
}
"""What each command does to a file, in the order of the first calls."""


@pytest.mark.parametrize(
    "words", [("rebuild", "--replace"), ("erase", "p1", "--pseudonym", "somebody")]
)
def test_killed_after_each_effect(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Until the new file takes the place of the old one, that is as it was; from then on all is
    done. The command can always be run again, and leaves nothing behind."""
    path = tmp_path / "ratings.db"
    rate(path)
    submit(path, season())
    done("correct", "void", "duels", "r3", "--data", path)
    rate(path)
    effects, at = EFFECTS[words[0]], Settings(data=str(path))
    events, old = watched(path), path.stat().st_ino
    seen: list[str] = []
    for number in itertools.count(1):
        with halting(words, environment_of(at), effects, tmp_path / "log") as halts:
            made = [*itertools.islice(halts, number)]
        seen += made[-1:]
        assert "all equal" in done("verify", "--data", path), made
        if made[-1] == "Database.replace_by":
            break
        assert (watched(path), path.stat().st_ino) == (events, old), made
    assert set(seen) == {*map(short, effects)}
    assert path.stat().st_ino != old
    again = stream_rater("rebuild", "--replace", settings=at)
    assert (again.returncode, complaints(again.stderr)) == (0, [])
    assert (b"p1" not in path.read_bytes()) == (words[0] == "erase")
    assert not [each for each in tmp_path.iterdir() if ".stream-rater-" in each.name]


def watched(path: Path) -> str:
    words = ("watch", "--from-start", "--json", "--count", "1000", "--wait", "0.01")
    return stream_rater(*words, settings=Settings(data=str(path))).stdout
