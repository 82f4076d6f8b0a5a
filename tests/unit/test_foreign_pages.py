"""Where no token is needed to write, no page of another site may write."""

import pytest

from stream_rater.serve.http.tokens import check_origin, is_loopback
from stream_rater.serve.problems import Refused

HERE = "127.0.0.1:9109"


def test_own_pages_and_programs_may_write() -> None:
    """Programs send no origin, and the process' own page sends its own."""
    for host in (HERE, "localhost:9109", "[::1]:9109"):
        check_origin({"host": host})
    check_origin({"host": HERE, "origin": f"http://{HERE}"})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "games.example:9109"},
        {"host": "games.example:9109", "origin": "http://games.example:9109"},
        {"host": HERE, "origin": "http://games.example"},
        {"host": HERE, "origin": "http://127.0.0.1:80"},
        {"host": HERE, "origin": "null"},
        {"host": "127.0.0.1.games.example", "origin": "http://127.0.0.1.games.example"},
    ],
)
def test_others_may_not(headers: dict[str, str]) -> None:
    """A form of another site; and a name of another site that leads to this machine."""
    with pytest.raises(Refused, match="SERVE_WRITE_TOKEN"):
        check_origin(headers)


def test_what_only_this_machine_can_reach() -> None:
    """An empty host stands for all addresses."""
    here = ["127.0.0.1:0", "[::1]:9109", "localhost"]
    others = ["0.0.0.0:9109", "[::]:9109", "games.example:9109", ":9109", ""]
    assert [each for each in [*here, *others] if is_loopback(each)] == here
