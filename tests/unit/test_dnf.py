"""A ladder's rule for unfinished entries: where it is set, what is refused, what it does."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater import BadParameters
from stream_rater import Ladder as InNotebook
from stream_rater.config.files import read_ladders
from stream_rater.config.ladders import any_ladder
from stream_rater.rating import parameters
from stream_rater.rating.parameters import Climbing, EloMMR, fingerprint, from_builtins
from stream_rater.replay.pool import Pool
from stream_rater.runtime.engine import EmbeddedEngine
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.builders.commands import done, failed, run
from tests.rounds import as_json, day, ranked, read

COMPARING = EloMMR | parameters.EloMMX | parameters.EloR | Climbing
"""The systems with both rules; two-moment has the old one, too."""
NEW = EloMMR(weight_limit=0.2, sigma_limit=80.0)
OLD = msgspec.structs.replace(NEW, dnf="not-compared")
RATING = '[ladders."*".rating]\nsystem = "elo-mmr"\nweight_limit = 0.2\nsigma_limit = 80\n'
CHANGING = (
    "[ladders.ranked-eu]\n"
    'rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80, dnf = "not-compared" }\n'
    "[[ladders.ranked-eu.changes]]\nfrom_offset = 2\n"
    'rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }\n'
)
"""The rule of the first two rounds is the old one."""

STANDINGS = [
    ranked([1, 2, 0, 0, 0], ["ann", "bob", "cy", "dee", "eve"]),
    ranked([0, 1, 1, 0, 0], ["ann", "bob", "cy", "dee", "eve"]),
    ranked([0, 0, 1, 2, 0], ["ann", "bob", "cy", "dee", "eve"]),
    ranked([2, 1, 0, 0], ["ann", "bob", "dee", "fay"]),
]
FIELDS = [{"round_id": f"r{i}", "completed_at": day(i)} for i in range(len(STANDINGS))]
ROUNDS = [as_json(*each, **more) for each, more in zip(STANDINGS, FIELDS, strict=True)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(ROUNDS))
    return path


def replayed(configs: list[EloMMR]) -> dict[str, float]:
    """Every player's mu after the rounds, each by its own parameters, one after the other."""
    pool = Pool(configs[0])
    for offset, config in enumerate(configs):
        pool.follow(config)
        pool.rate(read(config, *STANDINGS[offset], **FIELDS[offset]), offset)
    return {player: float(header["mu"]) for player, header in pool}


def test_rate_and_the_service_go_by_the_ladders_word(tmp_path: Path, file: Path) -> None:
    """From a change on, the new rule counts. An unfinished entry falls less if others tie."""
    for toml, configs in (
        (RATING, [NEW] * 4), (RATING + 'dnf = "tied-last"\n', [NEW] * 4),
        (RATING + 'dnf = "not-compared"\n', [OLD] * 4), (CHANGING, [OLD, OLD, NEW, NEW]),
    ):  # fmt: skip
        (ladders := tmp_path / "l.toml").write_text(toml)
        text = done("rate", file, "--ladders", ladders, "--records")
        printed = [json.loads(line) for line in text.splitlines()]
        assert {each["player"]: each["mu"] for each in printed} == replayed(configs)
        engine = EmbeddedEngine(read_ladders(ladders))
        for each in ROUNDS:
            engine.log.submit(0, each, received_s=2e9)
        engine.settle()
        stored = {
            player: b64encode(data).decode()
            for some in engine.store.beliefs.values()
            for (_, player), data in some.items()
        }
        assert stored == {each["player"]: each["record"] for each in printed}
    old, new = replayed([OLD] * 4), replayed([NEW] * 4)
    assert all(new[player] > old[player] for player in ("dee", "eve"))


def test_some_systems_only_tie(tmp_path: Path, file: Path) -> None:
    """They compare all entries by their places; the other rule is refused in one line."""
    for config in SYSTEMS:
        system = config.__struct_config__.tag
        if isinstance(config, COMPARING | parameters.TwoMoment):
            continue
        table = msgspec.to_builtins(config)
        assert from_builtins({**table, "dnf": "tied-last"}) == config
        with pytest.raises(BadParameters, match=f"^dnf: {system} has 'tied-last' only$"):
            from_builtins({**table, "dnf": "not-compared"})
        (path := tmp_path / "c.json").write_text(json.dumps({**table, "dnf": "not-compared"}))
        result = run("evaluate", file, "--config", path)
        assert result.exit_code == 2
        assert result.stderr == f"stream-rater: {path}: dnf: {system} has 'tied-last' only\n"


def test_a_word_of_a_ladder(tmp_path: Path, file: Path) -> None:
    """In a notebook it is a keyword. Another word is refused in one line with its place."""
    for word, config in (("tied-last", NEW), ("not-compared", OLD)):
        ladder = InNotebook(weight_limit=0.2, sigma_limit=80, dnf=word)  # type: ignore[arg-type]
        assert ladder.parameters == config
    (ladders := tmp_path / "l.toml").write_text(RATING + 'dnf = "last"\n')
    refused = f"{ladders}: ladder '*': Invalid enum value 'last' - at `$.rating.dnf`"
    assert failed("rate", file, "--ladders", ladders) == refused
    with pytest.raises(BadParameters, match=r"^Ladder: Invalid enum value 'last' - at `\$.dnf`$"):
        InNotebook(weight_limit=0.2, sigma_limit=80, dnf="last")  # type: ignore[arg-type]


FINGERPRINTS = {
    "elo-mmr": ("73aced01e387186c", "0:f37007ecb9cdf1d2"),
    "elo-r": ("7d7b1ce2001b4f48", "0:e3dc7489817dbcaf"),
    "elo-mmx": ("ce1c39ce09110d27", "0:c862bc68d08da2d8"),
    "codeforces": ("24f67f73a8f1fc44", "0:d7b36ed177b3d795"),
    "topcoder": ("667807d2c4155741", "0:7cb88d22919f333e"),
    "glicko": ("fbeb30ae98e0df1a", "0:765d0f0252ff1751"),
    "glicko2": ("7fce1ec64d51d49e", "0:024ddd1088a59204"),
    "bar": ("c08501794bf911f5", "0:f264389cfda72005"),
    "trueskill": ("5af2b09a9e624d93", "0:60a387dec1fc3be5"),
    "two-moment": ("479fcfac1306fa66", "0:6687f856c821d86c"),
    "elo": ("6ecd7e7776adf689", "0:70bfbae92514e369"),
    "pairwise-elo": ("aad885c0a5198b55", "0:0b22087930850acb"),
    "plackett-luce": ("47d9e48746a203fe", "0:171cecbaf2a9b32b"),
    "thurstone": ("9a190faffff0cbcb", "0:0ae724a998863a35"),
}
"""Of `SYSTEMS`, and a ladder's history, before there was the parameter."""


def test_workers_of_older_releases_agree() -> None:
    """So an upgrade does not stop. By default Kerby's systems do not compare; all others tie."""
    found = {
        str(config.__struct_config__.tag): (fingerprint(config), *any_ladder(config).history("any"))
        for config in SYSTEMS
    }
    assert found == FINGERPRINTS
    for config in SYSTEMS:
        climbing = isinstance(config, Climbing)
        assert config.dnf == ("not-compared" if climbing else "tied-last"), config
        if isinstance(config, COMPARING):
            word = "tied-last" if climbing else "not-compared"
            other: Any = msgspec.structs.replace(config, dnf=word)
            tag = str(config.__struct_config__.tag)
            assert fingerprint(other) != FINGERPRINTS[tag][0]
            assert any_ladder(other).history("any") != FINGERPRINTS[tag][1:]
