"""deploy/tools/local/setup.py and steps.py: parallel steps, failures and refusals."""

import threading
from pathlib import Path

import pytest

from local import python_env, setup, steps
from local.tools import LocalServerError
from tests.waits import HANGS_S


@pytest.fixture(autouse=True)
def own_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A lock that no set-up of this tree holds."""
    monkeypatch.setattr(steps, "SERVERS", tmp_path)


def fail(reason: str) -> None:
    """A step that cannot be done."""
    raise LocalServerError(reason)


def test_parts_run_at_once() -> None:
    """Each part waits here until the other has begun."""
    both = threading.Barrier(2, timeout=HANGS_S)

    def wait() -> None:
        both.wait()

    steps.side_by_side(wait, wait)
    assert both.broken is False


def test_a_failed_part_lets_the_others_end() -> None:
    """The error comes once all parts have ended."""
    begun, ended = threading.Event(), threading.Event()

    def other() -> None:
        assert begun.wait(HANGS_S)
        ended.set()

    def failing() -> None:
        begun.set()
        fail("no Kafka")

    with pytest.raises(LocalServerError, match="no Kafka"):
        steps.side_by_side(failing, other)
    assert ended.is_set()


def test_a_failure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """And exit code 1."""
    assert steps.run(lambda: fail("no Java")) == 1
    assert steps.run(lambda: None) == 0
    assert capsys.readouterr().err == "setup: no Java\n"


def test_an_unknown_set_up_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and nothing is done."""
    assert setup.main(["everything"]) == 2
    assert capsys.readouterr().err == "setup: no such set-up: everything\n"


def test_another_trees_environment_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A link in place of .venv is refused, and nothing behind it is removed."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    (theirs / "pyvenv.cfg").touch()
    ours.symlink_to(theirs)
    monkeypatch.setattr(python_env, "VENV_DIRECTORY", ours)
    monkeypatch.setattr(python_env, "_have_venv", lambda: False)
    with pytest.raises(LocalServerError, match=r"is a link to .*: remove the link"):
        python_env.ensure_venv(lambda _: None)
    assert (theirs / "pyvenv.cfg").exists()
