"""The README says what is there: commands, settings, parameters, metrics, codes and files."""

import argparse
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any, get_args

import click
import msgspec
import pytest
from prometheus_client.metrics import MetricWrapperBase

from examples import game_backend, matchmaking
from local.tools import ROOT
from stream_rater.cli import app
from stream_rater.config import PREFIX, Ladder, Ladders, Limits, Settings
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.rating.parameters import Climbing, Common, EloMMR, Evolving, RatingConfig
from stream_rater.rounds.validation import CODES
from stream_rater.runtime.metrics import Lag, Metrics
from tests.helm import chart
from tests.rounds import Reader

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)

NOT_SETTINGS = {"STREAM_RATER_SHARED"}


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


def commands() -> Iterator[list[str]]:
    """Every command in the shell blocks, as words."""
    for block in blocks("sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words


def parser_of(example: Any) -> Callable[[list[str]], argparse.Namespace]:
    parse: Callable[[list[str]], argparse.Namespace] = example.parse
    return parse


PARSERS = {
    "deploy/examples/game_backend.py": parser_of(game_backend),
    "deploy/examples/matchmaking.py": parser_of(matchmaking),
}


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_in_a_shell_block_is_one(words: list[str], monkeypatch: Any) -> None:
    """Its options exist, and so do its files."""
    monkeypatch.chdir(ROOT)
    match words:
        case ["eval", "$(make up)"]:
            pass
        case ["make", target, *variables]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert all(re.match(r"[A-Z]+=", each) for each in variables)
        case ["export", *settings]:
            assert all(known_setting(each.partition("=")[0]) for each in settings)
        case [".venv/bin/stream-rater", name, *arguments]:
            app.main.commands[name].make_context(name, arguments)
        case [".venv/bin/python", script, *arguments]:
            PARSERS[script](arguments)
        case ["helm", "install" | "upgrade", *arguments]:
            done = chart.helm("template", *arguments, at=ROOT)
            assert done.returncode == 0, done.stderr
        case ["helm", "test", _, "--namespace", _]:
            pass
        case _:
            pytest.fail(f"not known to this test: {words}")


def test_an_upgrade_has_the_ladders_of_the_install() -> None:
    """Helm forgets the values of before where new ones are given."""
    (installed,) = (words for words in commands() if words[:2] == ["helm", "install"])
    files = {each for each in installed if each.startswith(("ladders=", "--set-file"))}
    assert len(files) == 2
    for words in commands():
        assert words[:2] != ["helm", "upgrade"] or files <= set(words), words


@pytest.mark.parametrize("usage", re.findall(r"^\| `stream-rater (.+?)` \|", README, re.MULTILINE))
def test_every_option_in_the_table_of_commands_exists(usage: str) -> None:
    """And no option is left out, but for --settings, which all have."""
    name = usage.split(maxsplit=1)[0]
    told = set(re.findall(r"--[\w-]+", usage))
    there = {name for each in app.main.commands[name].params for name in each.opts}
    assert told == {name for name in there if name.startswith("--")} - {"--settings"}


def test_every_command_is_told() -> None:
    """The table of commands is complete."""
    told = set(re.findall(r"^\| `stream-rater (\w+)", README, re.MULTILINE))
    assert told == set(app.main.commands)
    assert all(isinstance(each, click.Command) for each in app.main.commands.values())


def known_setting(variable: str) -> bool:
    name = variable.removeprefix(PREFIX).lower()
    return variable in NOT_SETTINGS or name in Settings.__struct_fields__


def shown(default: Any) -> str:
    """A default as the tables write it."""
    if isinstance(default, bool):
        return str(default).lower()
    return f"`{default}`" if isinstance(default, str) else f"{default}"


def test_every_setting_is_told_with_its_default() -> None:
    """The table of settings is complete and right."""
    rows = re.findall(r"^\| `STREAM_RATER_(\w+)` \| (.*?) \|", README, re.MULTILINE)
    told = {name.lower(): default for name, default in rows}
    there = {each.name: each.default for each in msgspec.structs.fields(Settings)}
    del there["kafka_options"]
    assert set(told) == set(there)
    for name, default in there.items():
        expected = {"none", "random"} if default == "" else {shown(default)}
        assert told[name] in expected, name


def test_every_variable_named_anywhere_is_a_setting() -> None:
    """No misspelt STREAM_RATER_ in the text."""
    assert [v for v in re.findall(r"STREAM_RATER_[A-Z_]+", README) if not known_setting(v)] == []


def table_rows(heading: str) -> dict[str, str]:
    """First and second column of the table with this first heading."""
    text = README.split(f"| `{heading}` |", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", text, re.MULTILINE)
    return {
        name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)
    }  # fmt: skip


def test_every_rating_parameter_is_told() -> None:
    """By the names of the struct that parses them, with plain defaults as they are."""
    told = table_rows("[ladders.ID.rating]")
    there = {each.encode_name: each.default for each in msgspec.structs.fields(EloMMR)}
    assert set(told) == {*there, "system"}
    for name in ("rho", "drift_per_day", "history", "provisional_rounds"):
        assert float(told[name]) == there[name], name
    assert told["initial_mu"] == f"{there['initial_mu']:g}, {there['initial_sigma']:g}"


SHARED = set(Common.__struct_fields__)
"""What the table of Elo-MMR tells for all systems."""


def told_default(default: Any) -> str:
    """A default as the table of systems writes it; nothing for a required parameter."""
    if isinstance(default, str):
        return f' `"{default}"`'
    return f" {default:.6f}".rstrip("0").rstrip(".") if isinstance(default, float) else ""


@pytest.mark.parametrize("system", get_args(RatingConfig))
def test_every_system_is_told_with_its_own_parameters(system: Any) -> None:
    """Those that not all have, with their defaults."""
    name = system.__struct_config__.tag
    own = [each for each in msgspec.structs.fields(system) if each.encode_name not in SHARED]
    if issubclass(system, Evolving):
        assert f'`"{name}"`' in README
        return
    (row,) = re.findall(rf'^\| `"{name}"` \| (.*) \|$', README, re.MULTILINE)
    if issubclass(system, Climbing):
        assert "those of the next table" in row
        own = [each for each in own if each.encode_name not in Climbing.__struct_fields__]
    for each in own:
        assert f"`{each.encode_name}`{told_default(each.default)}" in row


def test_every_parameter_of_kerbys_systems_is_told() -> None:
    """In a table of their own; `floor` again, for it means more there."""
    told = table_rows("elo`, `pairwise-elo`, `plackett-luce`, `thurstone")
    assert set(told) == {*Climbing.__struct_fields__} - SHARED | {"floor"}
    assert told["scale"] == "1" and told["learning_rate"] == "required"


def test_every_limit_is_told() -> None:
    """Those of a ladder and those of the file."""
    told = table_rows("[ladders.ID.limits]")
    assert set(told) == set(Limits.__struct_fields__)
    limits = Ladder(rating=EloMMR(weight_limit=0.2, sigma_limit=80.0)).limits
    assert told["max_entries"] == f"{limits.max_entries:,}"
    assert told["max_skew_s"] == f"{limits.max_skew_s:,}"
    assert told["max_bytes"] == f"{limits.max_bytes // 2**20} MiB, {limits.max_depth}"


SUFFIXES = {"counter": "_total", "info": "_info"}


def test_every_metric_is_told() -> None:
    """The table of metrics is complete."""
    there = {family.name for family in Lag().collect()}
    for metric in vars(Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.collect()
            there.add(family.name + SUFFIXES.get(family.type, ""))
    assert set(re.findall(r"^\| `(stream_rater_\w+)` \|", README, re.MULTILINE)) == there


def test_every_rejection_code_is_told() -> None:
    """Each code that the sources reject by stands in the table, and no other."""
    sources = [ROOT / "stream_rater" / name for name in ("standings.py", "pipeline/verdicts.py")]
    text = "".join(path.read_text() for path in sources)
    raised = set(re.findall(r'Invalid\(\s*"([a-z-]+)"', text))
    raised |= set(re.findall(r're\.compile\(.*\), "([a-z-]+)"\)', text))
    table = README.split("### What is rejected", 1)[1].split("\n\nA round in which", 1)[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)} == raised
    assert set(CODES) == raised


def test_the_events_shown_are_events() -> None:
    """A valid round, and a rating change with every field, whose rating follows from mu, sigma."""
    finished, changed = blocks("json")
    ladders = msgspec.toml.decode(blocks("toml")[0], type=Ladders)
    standings = Reader(ladders).read(finished.encode())
    assert standings.players == ["ann", "bob", "cy", "dee", "eve"]
    event = rating_changed_from_json(changed)
    assert set(msgspec.json.decode(changed)) == set(event.__struct_fields__)
    assert event.rating == pytest.approx(event.mu - 2.0 * (event.sigma - 80.0))
    assert event.previous_rating == pytest.approx(
        event.previous_mu - 2.0 * (event.previous_sigma - 80.0)
    )


def test_every_link_into_the_tree_leads_somewhere() -> None:
    """And so does every file that the map of the tree names."""
    links = re.findall(r"\]\((?!http)([^)]+)\)", README)
    assert [each for each in links if not (ROOT / each).exists()] == []
    files = re.findall(r"`(stream_rater/[\w/.]+)`", README)
    assert [each for each in files if not (ROOT / each).exists()] == []
