"""`erase` and `rebuild` on a data file, killed at each call that writes. (On servers:
`integration/test_erase_killed.py`, `test_move.py`, `test_rebuild.py`.)"""

import itertools
import shutil
from functools import partial
from pathlib import Path

import pytest

from stream_rater.config.settings import Settings
from tests.builders.commands import done
from tests.builders.kills import PORT_WRITES, dies_at
from tests.contract.places import make_file
from tests.integration.forks import Fork
from tests.integration.processes import complaints, environment_of, stream_rater
from tests.waits import HANGS_S

COMMANDS: dict[str, tuple[str, ...]] = {
    "rebuild": ("rebuild", "--replace", "--cores", "1"),
    "erase": ("erase", "ann", "--pseudonym", "somebody"),
}
UNUSED = {
    "rebuild": {"append", "copy_events", "write_standings", "commit_rounds", "begin_parts",
                "begin_copy", "mark_moved"},
    "erase": {"mark_moved"},
}  # fmt: skip
"""The writes that a command has no need of."""


def killed_at(number: int, words: tuple[str, ...], path: Path) -> str:
    """Run a command, and kill it at this call. The call's name; empty if the command ended."""
    said, log = path.with_name("said"), path.with_name("log")
    said.write_text("")
    prepare = partial(dies_at, number, str(said))
    code = Fork(words, environment_of(Settings(data=str(path))), log, log, prepare).wait(HANGS_S)
    assert code == (9 if said.read_text() else 0), log.read_text()
    return said.read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_each_call(tmp_path: Path, command: str) -> None:
    """Until the new file takes the old one's place, that is as it was; a second run is clean."""
    words, original = COMMANDS[command], tmp_path / "original.db"
    make_file(original)
    path, made = tmp_path / "ratings.db", list[str]()
    for number in itertools.count():
        shutil.copy(original, path)
        name = killed_at(number, words, path)
        if not name:
            break
        made.append(name)
        assert path.read_bytes() == original.read_bytes(), made
        assert "all equal" in done("verify", "--data", path), made
    assert {*made} == {*PORT_WRITES, "replace_by"} - UNUSED[command]
    shutil.copy(original, path)
    killed_at(len(made) - 1, words, path)
    again = stream_rater(*words, settings=Settings(data=str(path)))
    assert (again.returncode, complaints(again.stderr)) == (0, [])
    assert "all equal" in done("verify", "--data", path)
    assert (b"ann" in path.read_bytes()) == (command == "rebuild")
    assert not [each for each in tmp_path.iterdir() if ".stream-rater-" in each.name]
