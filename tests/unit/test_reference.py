"""The reference lists what is there, and nothing else: settings, parameters, codes, metrics."""

import re
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import pytest
from prometheus_client.metrics import MetricWrapperBase

from local.tools import ROOT
from stream_rater.adapters.kafka.topic_rules import wanted
from stream_rater.cli import app
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.ladders import Ladder, Limits
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import KINDS as CORRECTIONS
from stream_rater.contract.corrections import Batched, from_message
from stream_rater.contract.events import CorrectionCause, Entry, RatingChanged, RoundCompleted
from stream_rater.rating.parameters import Climbing, Common, EloMMR, Evolving, RatingConfig
from stream_rater.rating.record import FACTOR_SIZE, HEADER_SIZE, HISTORY_SIZE
from stream_rater.rating.record import VERSION as RECORD_VERSION
from stream_rater.rounds.validation import CODES, RULES
from stream_rater.runtime.lag import Lag
from stream_rater.runtime.metrics import Metrics
from tests.chaos.faults import FAULTS
from tests.pages import blocks, names, pages, section, table, text
from tests.simulation.faults import KINDS

COMMANDS, SETTINGS = text("reference/commands.md"), text("reference/settings.md")
LADDERS, EVENTS = text("reference/ladders.md"), text("reference/events.md")


# --- commands ------------------------------------------------------------------------------------

OF_ALL_CORRECTIONS = {"--reason", "--dry-run", "--file", "--top", "--format"}
"""Told once, below the table."""


def options(command: click.Command) -> set[str]:
    """The long options of a command."""
    return {name for each in command.params for name in each.opts if name.startswith("--")}


@pytest.mark.parametrize(
    "usage", re.findall(r"^\| `stream-rater (.+?)` \|", COMMANDS, re.MULTILINE)
)
def test_every_option_in_the_table_of_commands_exists(usage: str) -> None:
    """And no option is left out, but for --settings, which all have."""
    name, *more = usage.split()
    command, shared = app.main.commands[name], {"--settings"}
    if isinstance(command, click.Group):
        shared |= OF_ALL_CORRECTIONS
        command = command.commands[more[0]]
    assert set(re.findall(r"--[\w-]+", usage)) == options(command) - shared
    assert shared <= options(command) | {"--settings"}


def test_every_command_is_told() -> None:
    """The table of commands is complete."""
    told = set(re.findall(r"^\| `stream-rater (\w+)", COMMANDS, re.MULTILINE))
    assert told == set(app.main.commands)
    assert all(isinstance(each, click.Command) for each in app.main.commands.values())


def test_every_correction_is_told() -> None:
    """With the options that all of them have."""
    (group,) = (each for each in app.main.commands.values() if isinstance(each, click.Group))
    told = re.findall(r"^\| `stream-rater correct (\w+)", COMMANDS, re.MULTILINE)
    assert set(told) == set(group.commands)
    (note,) = re.findall(r"^- \*\*`correct`\*\*: (.*?)^- ", COMMANDS, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"--[\w-]+", note)) == OF_ALL_CORRECTIONS


# --- settings and topics -------------------------------------------------------------------------


def shown(default: Any) -> str:
    """A default as the tables write it."""
    if isinstance(default, bool):
        return str(default).lower()
    return f"`{default}`" if isinstance(default, str) else f"{default}"


def test_every_setting_is_told_with_its_default() -> None:
    """The table of settings is complete and right."""
    rows = re.findall(r"^\| `STREAM_RATER_(\w+)` \| (.*?) \|", SETTINGS, re.MULTILINE)
    told = {name.lower(): default for name, default in rows}
    there = {each.name: each.default for each in msgspec.structs.fields(Settings)}
    del there["kafka_options"]
    assert set(told) == set(there)
    for name, default in there.items():
        expected = {"none", "random"} if default == "" else {shown(default)}
        assert told[name] in expected, name


def test_every_topic_is_told() -> None:
    """Those that the service creates."""
    assert set(names(SETTINGS, "topic")) - {"STREAM_RATER_PARTITIONS"} == set(wanted(Settings()))


# --- ladders -------------------------------------------------------------------------------------


def table_rows(heading: str) -> dict[str, str]:
    """First and second column of the table with this first heading."""
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", table(LADDERS, f"`{heading}`"), re.MULTILINE)
    return {
        name: default for cell, default in rows for name in re.findall(r"`(\w+)`", cell)
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
        assert f'`"{name}"`' in LADDERS
        return
    (row,) = re.findall(rf'^\| `"{name}"` \| (.*) \|$', LADDERS, re.MULTILINE)
    if issubclass(system, Climbing):
        assert "those of the next table" in row
        own = [each for each in own if each.encode_name not in Climbing.__struct_fields__]
    for each in own:
        assert f"`{each.encode_name}`{told_default(each.default)}" in row


def test_every_parameter_of_kerbys_systems_is_told() -> None:
    """In a table of their own; `floor` and `dnf` again, for they mean something else there."""
    told = table_rows("elo`, `pairwise-elo`, `plackett-luce`, `thurstone")
    assert set(told) == {*Climbing.__struct_fields__} - SHARED | {"floor", "dnf"}
    assert told["scale"] == "1" and told["learning_rate"] == "required"


def test_every_limit_is_told() -> None:
    """Those of a ladder and those of the file."""
    told = table_rows("[ladders.ID.limits]")
    assert set(told) == set(Limits.__struct_fields__)
    limits = Ladder(rating=EloMMR(weight_limit=0.2, sigma_limit=80.0)).limits
    assert told["max_entries"] == f"{limits.max_entries:,}"
    assert told["max_skew_s"] == f"{limits.max_skew_s:,}"
    assert told["max_bytes"] == f"{limits.max_bytes // 2**20} MiB, {limits.max_depth}"


# --- events, codes and metrics -------------------------------------------------------------------


def test_every_field_of_an_event_is_told() -> None:
    """Of the rounds that are read and of the changes that are published."""
    rounds, changes = section(EVENTS, "round-completed"), section(EVENTS, "rating-changed")
    entries = {f"standings[].{name}" for name in Entry.__struct_fields__}
    assert set(names(rounds, "field")) == {*RoundCompleted.__struct_fields__, *entries}
    causes = {f"correction.{name}" for name in CorrectionCause.__struct_fields__}
    assert set(names(changes, "field")) == {*RatingChanged.__struct_fields__, *causes}


def test_every_field_of_a_correction_is_told() -> None:
    """Of each kind in its own table, with whether it is required; those of all kinds before."""
    common, *each = section(EVENTS, "Corrections").split("\n### ")
    assert set(names(common, "field")) == set(Batched.__struct_fields__)
    told = {part.partition("\n")[0]: part for part in each}
    assert list(told) == list(CORRECTIONS)
    for name, kind in CORRECTIONS.items():
        own = [f for f in msgspec.structs.fields(kind) if f.name not in Batched.__struct_fields__]
        there = {(f.encode_name, "yes" if f.required else "no") for f in own}
        rows = re.findall(r"^\| (`.*?) \| (yes|no) \|", told[name], re.MULTILINE)
        found = {(field, needed) for cell, needed in rows for field in re.findall("`(.*?)`", cell)}
        assert found == there, name


def test_corrections_shown_are_corrections() -> None:
    """An example of each kind, which the service decodes."""
    for part in section(EVENTS, "Corrections").split("\n### ")[1:]:
        kind = part.partition("\n")[0]
        (example,) = blocks(part, "json")
        assert isinstance(from_message(kind, example.encode()), CORRECTIONS[kind])


SUFFIXES = {"counter": "_total", "info": "_info"}


def test_every_metric_is_told() -> None:
    """The table of metrics is complete, with each one's labels."""
    there = {family.name: "topic, partition" for family in Lag().collect()}
    for metric in vars(Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.collect()
            there[family.name + SUFFIXES.get(family.type, "")] = ", ".join(metric._labelnames)
    there["stream_rater_info"] = "version, kernel"
    rows = re.findall(r"^\| `(stream_rater_\w+)` \| (.*?) ?\|", text("reference/metrics.md"), re.M)
    assert dict(rows) == there


def test_every_rejection_code_is_told() -> None:
    """Each code that the sources reject by stands in the table, and no other."""
    sources = "".join(path.read_text() for path in (ROOT / "stream_rater").rglob("*.py"))
    raised = set(re.findall(r'Invalid\(\s*"([a-z-]+)"', sources))
    raised |= set(re.findall(r're\.compile\(.*\), "([a-z-]+)"\)', sources))
    raised |= {rule.code for rule in RULES}
    assert set(names(text("reference/errors.md"), "code")) == raised == set(CODES)


# --- how it works --------------------------------------------------------------------------------


def test_every_fault_is_told() -> None:
    """Those that are simulated, by the names in the soak's table, and those of `make chaos`."""
    page = text("internals/testing.md")
    assert [label for label in KINDS.values() if label not in page] == []
    told = {*names(page.split("## Chaos", 1)[1], "fault")}
    assert {each.replace("storm-lobbies", "storm-codeforces") for each in FAULTS} == told


def test_the_record_is_told() -> None:
    """Its sizes, and in the changelog its version and that of the kernels."""
    page = " ".join(text("internals/record.md").split())
    assert f"That is the header of {HEADER_SIZE} bytes" in page
    assert f"If there are past performances, {HISTORY_SIZE} bytes follow" in page
    assert f"then {FACTOR_SIZE} bytes for each" in page
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"kernel version {KERNEL_VERSION} and record version {RECORD_VERSION}" in changes


def test_every_package_is_told() -> None:
    """Where things are: a row for each, and no other."""
    there = {path.parent.name for path in (ROOT / "stream_rater").glob("*/__init__.py")}
    assert set(names(text("internals/index.md"), "package")) == there


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_begins_with_its_title(page: Path) -> None:
    """One of the first level, and no other."""
    titles = re.findall(r"^# (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    assert len(titles) == 1
