"""A user and a password in files that change: what is read, and which refusals are final."""

from pathlib import Path

import pytest

from stream_rater.config.changing_credentials import (
    PATIENCE_S,
    ChangingCredentials,
    Credentials,
)
from stream_rater.config.errors import BadConfiguration

GIVEN = Credentials("ann", "given")


class Clock:
    """A time that the test sets, in seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_the_settings_say_never_changes() -> None:
    """Without a file, a refusal is final at once."""
    found = ChangingCredentials(GIVEN)
    assert not found.may_change
    assert found.read() == GIVEN
    assert found.is_final(GIVEN)


def test_a_file_is_read_again(tmp_path: Path) -> None:
    """Each read returns the present contents, without the end of the line. While the file is
    absent or empty, the last contents count."""
    file = tmp_path / "password"
    found = ChangingCredentials(GIVEN, password_file=str(file))
    with pytest.raises(BadConfiguration, match="password: no such file"):
        found.read()
    file.write_text("")
    with pytest.raises(BadConfiguration, match="password: empty"):
        found.read()
    file.write_bytes(b"\xff")
    with pytest.raises(BadConfiguration, match="password: not UTF-8"):
        found.read()
    for password in ("first\n", "second\r\n"):
        file.write_text(password)
        assert found.read() == Credentials("ann", password.strip())
    file.write_text("")
    assert found.read() == Credentials("ann", "second")
    file.unlink()
    assert found.read() == Credentials("ann", "second")


def test_user_and_password_are_of_one_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If both files change between the two reads, the old user is not returned with the new
    password."""
    user, password = tmp_path / "user", tmp_path / "password"
    user.write_text("old")
    password.write_text("old's")
    found = ChangingCredentials(GIVEN, str(user), str(password))
    assert found.read() == Credentials("old", "old's")
    read_text = Path.read_text
    reads: list[Path] = []

    def rotated(path: Path, *given: object, **named: object) -> str:
        text = read_text(path, encoding="utf-8")
        if not reads:
            user.write_text("new")
            password.write_text("new's")
        reads.append(path)
        return text

    monkeypatch.setattr(Path, "read_text", rotated)
    assert found.read() == Credentials("new", "new's")


def test_a_changed_file_is_tried_at_once(tmp_path: Path) -> None:
    """However long the server refused the old password, the new one gets its own time."""
    file, clock = tmp_path / "password", Clock()
    file.write_text("old")
    found = ChangingCredentials(GIVEN, password_file=str(file), clock=clock)
    old = found.read()
    assert not found.is_final(old)
    clock.now_s = PATIENCE_S
    file.write_text("new")
    assert not found.is_final(old)
    assert not found.is_final(found.read())
    clock.now_s = 2 * PATIENCE_S
    assert found.is_final(found.read())


def test_the_server_may_be_behind(tmp_path: Path) -> None:
    """An unchanged password is refused for a while before that is final. A login that succeeded
    ends this while."""
    file, clock = tmp_path / "password", Clock()
    file.write_text("new")
    found = ChangingCredentials(GIVEN, password_file=str(file), clock=clock)
    used = found.read()
    assert not found.is_final(used)
    clock.now_s = PATIENCE_S - 1
    assert not found.is_final(used)
    found.accepted()
    clock.now_s = PATIENCE_S
    assert not found.is_final(used)
    clock.now_s = 2 * PATIENCE_S
    assert found.is_final(used)


def test_credentials_are_not_printed() -> None:
    """Not even in a traceback."""
    assert "given" not in repr(GIVEN)
