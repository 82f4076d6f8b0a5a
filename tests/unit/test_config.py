"""Files and environment: what they set, and one clear line where they make no sense."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.config import files
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import DEFAULT_RATING, Ladder, Ladders, Limits, Terms
from stream_rater.config.settings import Settings
from stream_rater.pipeline.ladder_history import UNKNOWN
from stream_rater.rating.parameters import EloMMR

LADDERS = """
[limits]
max_bytes = 1000

[ladders."*".rating]
system = "elo-mmr"
weight_limit = 0.23
sigma_limit = 54

[ladders.ranked-eu]
limits = { max_entries = 12, max_skew_s = 60 }
rating = { system = "elo-mmr", beta = 200, gamma = 80, rho = "inf", display = { minus_sigma = 3 } }
"""

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return written


def refusal(action: Callable[..., Any], *given: Any) -> str:
    """The message of a refusal, which is one line."""
    with pytest.raises(BadConfiguration) as refused:
        action(*given)
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_ladders(write: Write) -> None:
    """A named ladder has its own parameters and limits, others the template's; so it is in JSON."""
    ladders = files.read_ladders(write("ladders.toml", LADDERS))
    eu, other = ladders.find("ranked-eu"), ladders.find("casual")
    assert eu is not None and other is not None
    assert eu.limits == Limits(max_entries=12, max_skew_s=60)
    assert isinstance(eu.rating, EloMMR) and eu.rating.rho == "inf"
    assert other == Terms(EloMMR(weight_limit=0.23, sigma_limit=54.0), Limits())
    assert ladders.limits.max_bytes == 1000
    assert files.read_ladders(write("ladders.json", msgspec.json.encode(ladders))) == ladders
    named = Ladders(ladders={"eu": Ladder(rating=DEFAULT_RATING)})
    assert named.find("eu") is not None and named.find("us") is None
    limits = Limits()
    assert (limits.max_bytes, limits.max_depth, limits.max_entries) == (8 * 2**20, 16, 1_000_000)
    assert (limits.max_skew_s, limits.max_weight) == (86_400, 1000.0)


CHANGING = """
[ladders.new]
from_offset = 100
rating = { system = "elo-mmr", weight_limit = 0.3, sigma_limit = 60 }

[[ladders.new.changes]]
from_offset = 200
limits = { max_entries = 5 }

[[ladders.new.changes]]
from_offset = 300
rating = { system = "elo-mmr", weight_limit = 0.4, sigma_limit = 60, history = 8 }
"""


def test_a_ladder_changes_at_its_offsets(write: Write) -> None:
    """Before the first it is the template's, or unknown; what a change does not say stays."""

    def at(offset: float) -> tuple[float | None, int] | None:
        found = ladders.find("new", offset)
        if found is None:
            return None
        assert isinstance(found.rating, EloMMR)
        return found.rating.weight_limit, found.limits.max_entries

    ladders = files.read_ladders(write("ladders.toml", LADDERS + CHANGING))
    assert at(99) == (0.23, 1_000_000)
    assert at(100) == at(199) == (0.3, 1_000_000)
    assert at(200) == at(299) == (0.3, 5)
    assert at(300) == at(math.inf) == (0.4, 5)
    assert [entry.split(":")[0] for entry in ladders.history("new")] == ["0", "100", "200", "300"]
    assert len(set(ladders.history("new"))) == 4

    ladders = files.read_ladders(write("ladders.toml", CHANGING))
    assert at(99) is None
    assert [entry.split(":")[0] for entry in ladders.history("new")] == ["0", "100", "200", "300"]
    assert ladders.history("other") == UNKNOWN


OTHER = 'rating = { system = "elo-mmx", weight_limit = 0.3, sigma_limit = 60 }'


def test_changes_that_make_no_sense(write: Write) -> None:
    limits = "limits = { max_entries = 5 }"
    template = '[[ladders."*".changes]]\nfrom_offset = 1\n'
    for text, says in (
        (CHANGING.replace("= 300", "= 200"), r"'new'.*changes\[1\]: from_offset must be over 200"),
        (CHANGING.replace("= 200", "= 100"), r"changes\[0\]: from_offset must be over 100"),
        (CHANGING.replace(limits, ""), r"changes\[0\]: neither rating nor"),
        (CHANGING.replace(limits, OTHER), "another system is another ladder"),
        (LADDERS + f"[ladders.mmx]\nfrom_offset = 1\n{OTHER}\n", "'mmx': .* another ladder"),
        (LADDERS + template + OTHER, "another system"),
        (LADDERS + template + "limits = {}\n", "name it to change"),
        (CHANGING.replace("= 200", "= -1"), "from_offset"),
    ):
        assert re.search(says, refusal(files.read_ladders, write("ladders.toml", text))), says


RATING = 'system = "elo-mmr"\nweight_limit = 0.23\nsigma_limit = 54\n'


def test_a_bad_rating_file(write: Write) -> None:
    """The file and the place in it are named."""
    bad: list[tuple[str, str | bytes, str]] = [
        ("a.toml", RATING + "sigma = 1", "`sigma`"),
        *(("a.toml", RATING.replace("54", x), "$.sigma_limit") for x in ("-54", "nan", '"54"')),
        ("a.toml", RATING.replace("elo-mmr", "elo-mmm"), "$.system"),
        ("a.toml", RATING + "rho = ?\n", "line 4"), ("a.toml", b"\xff", "utf-8"),
        ("a.toml", "a = " + "[" * 100_000, "nested"), ("a.json", "{", "truncated"),
        ("a.json", "[]", "object"), ("a.json", '{"a": ' + "[" * 100_000, "nested"),
        ("a.json", b'{"\xff": 1}', "utf-8"),
    ]  # fmt: skip
    for name, text, place in bad:
        path = write(name, text)
        message = refusal(files.read_rating, path)
        assert message.startswith(f"{path}: ") and place in message, place


def test_bad_ladders(write: Write) -> None:
    """Unknown fields and bad values are refused anywhere. So is a missing file, or a folder."""
    for old, new, place in (
        ("max_entries = 12", "max_entries = 1",
         "ladder 'ranked-eu': Expected `int` >= 2 - at `$.limits.max_entries`"),
        ("max_entries = 12", "max_player = 12", "max_player"),
        ("[ladders.ranked-eu]", "[ladders.ranked-eu]\nnote = 1", "`note`"),
        ("max_bytes = 1000", "max_depth = 100", "$.limits.max_depth"),
        ("gamma = 80", "gamma = 0",
         "ladder 'ranked-eu': Expected `float` >= 1e-06 - at `$.rating.gamma`"),
        ("gamma = 80, ", "", "either"),
        ("[limits]", "[limit]", "limit"),
    ):  # fmt: skip
        assert place in refusal(files.read_ladders, write("l.toml", LADDERS.replace(old, new)))
    folder = write("l.toml", "").parent
    assert refusal(files.read_ladders, folder / "no.toml") == f"{folder}/no.toml: no such file"
    assert refusal(files.read_rating, folder) == f"{folder}: Is a directory"


def test_settings_from_the_environment() -> None:
    """STREAM_RATER_<NAME> sets a field, as text. Variables of other programs are not checked."""
    variables = {
        "STREAM_RATER_SHARDS": "12", "STREAM_RATER_KAFKA": "kafka:9092",
        "STREAM_RATER_SHARED": "elsewhere", "SHARDS": "13", "PATH": "",
        # In a Kubernetes namespace with services of these names:
        "STREAM_RATER_PORT": "tcp://10.0.0.1:9108", "STREAM_RATER_PORT_9108_TCP_ADDR": "10.0.0.1",
        "STREAM_RATER_SERVICE_HOST": "10.0.0.1", "STREAM_RATER_REDIS_SERVICE_PORT_REDIS": "6379",
    }  # fmt: skip
    assert files.read_settings(None, variables) == Settings(shards=12, kafka="kafka:9092")


def test_a_misspelt_setting_is_refused(write: Write) -> None:
    """The nearest variable's name is given, in the file, too. A bad value names its field."""
    for wrong, nearest in (
        ("SHARD", "SHARDS"), ("KAFKA_SERVERS", "KAFKA"), ("LOGLEVEL", "LOG_LEVEL"),
        ("shards", "SHARDS"),
    ):  # fmt: skip
        message = refusal(files.read_settings, None, {f"STREAM_RATER_{wrong}": "7"})
        says = f"STREAM_RATER_{wrong} is no setting; the nearest is STREAM_RATER_{nearest}"
        assert message.startswith(f"environment: {says}")
    assert "`shard`" in refusal(files.read_settings, write("s.toml", "shard = 4"), {})
    for value in ("many", "", "0", "-1", "1.5", "100000"):
        message = refusal(files.read_settings, None, {"STREAM_RATER_SHARDS": value})
        assert message.startswith("environment: ") and "$.shards" in message, value


def test_the_environment_overrides_the_file(write: Write) -> None:
    """Where both set something, the environment counts. Without a file, ladders have defaults."""
    path = write("s.toml", 'shards = 4\npartitions = 3\n[kafka_options]\n"socket.nagle" = "1"')
    found = files.read_settings(path, {"STREAM_RATER_SHARDS": "12"})
    assert found == Settings(shards=12, partitions=3, kafka_options={"socket.nagle": "1"})
    assert files.read_settings(path, {}).shards == 4
    named = files.ladders_of_settings(Settings(ladders=str(write("ladders.toml", LADDERS))))
    assert named == files.read_ladders(path.with_name("ladders.toml"))
    assert files.ladders_of_settings(Settings()).find("anything") == Terms(DEFAULT_RATING, Limits())


def test_who_names_no_system_sees_which_there_are(write: Write) -> None:
    for text in ('{"system":"elommr"}', "{}"):
        assert refusal(files.read_rating, write("c.json", text)).endswith(
            "; the systems are bar, codeforces, elo, elo-mmr, elo-mmx, elo-r, glicko, glicko2, "
            "pairwise-elo, plackett-luce, thurstone, topcoder, trueskill, two-moment"
        )
    ladders = write("l.toml", '[ladders.a.rating]\nsystem = "mmr"')
    assert "the systems are bar, codeforces" in refusal(files.read_ladders, ladders)
    other = write("d.json", '{"system":"codeforces","beta":"much"}')
    assert "the systems" not in refusal(files.read_rating, other)
