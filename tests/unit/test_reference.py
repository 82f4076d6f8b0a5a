"""The reference is what `make reference` writes from the code; other pages list what is there."""

import re
from pathlib import Path

import pytest
import reference

from local.tools import ROOT
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.corrections import KINDS as CORRECTIONS
from stream_rater.contract.corrections import from_message
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import SEEDS
from stream_rater.rating.record import FACTOR_SIZE, HEADER_SIZE, HISTORY_SIZE
from stream_rater.rating.record import VERSION as RECORD_VERSION
from stream_rater.rounds import seed_records
from stream_rater.rounds.validation import CODES, RULES
from tests.chaos.faults import FAULTS
from tests.pages import blocks, names, pages, section, shown, text
from tests.simulation.faults import KINDS

EVENTS = text("reference/events.md")


# --- what `make reference` writes -----------------------------------------------------------------

REFERENCE = pages("reference")


@pytest.mark.parametrize("page", REFERENCE, ids=shown)
def test_the_reference_is_what_the_code_says(page: Path) -> None:
    """Generating it again changes nothing: no name is missing, and no default is wrong."""
    assert reference.written(page.read_text()) == page.read_text(), "run `make reference`"


def test_every_part_is_on_a_page() -> None:
    """Each part stands once; so every setting, command, metric, code and field is listed."""
    parts = [part for page in REFERENCE for part in reference.PART.finditer(page.read_text())]
    generated = sorted(part[3] for part in parts if part[2] == "generated")
    checked = sorted(part[3] for part in parts if part[2] == "checked")
    assert (generated, checked) == (sorted(reference.GENERATED), sorted(reference.CHECKED))


TABLE = "| field | default | meaning |\n|---|---|---|\n| `a`, `b` | 1 | two |\n| `c` | x | one |"


def test_a_checked_table_has_each_name_once_and_its_defaults() -> None:
    """The second column is filled in unless the code has nothing for it."""
    found = reference.filled("of", TABLE, {"a": "5", "b": "6", "c": None})
    assert found == TABLE.replace("| 1 |", "| 5, 6 |")
    for cells, unlike in (({"a": "5", "b": "6"}, "c"), ({**dict.fromkeys("abcd")}, "d")):
        with pytest.raises(ValueError, match=f"the table of and the code differ in {unlike}"):
            reference.filled("of", TABLE, cells)
    with pytest.raises(ValueError, match="differ in a, b, c, c"):
        reference.filled("of", f"{TABLE}\n| `c` | x | again |", dict.fromkeys("abc"))


def test_a_page_that_lacks_a_name_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names the page, the table and what differs; the exit code is 1."""
    page = tmp_path / "ladders.md"
    page.write_text("<!-- checked: limits -->\n| a | b |\n|---|---|\n| `x` | 1 |\n<!-- end -->\n")
    monkeypatch.setattr(reference, "PAGES", tmp_path)
    before = page.read_text()
    assert reference.main() == 1
    error = capsys.readouterr().err
    assert error.startswith("reference: ladders.md: the table limits and the code differ in ")
    assert "max_skew_s" in error and error.count("\n") == 1 and page.read_text() == before


def test_what_a_part_is_made_of() -> None:
    """Docstrings, help texts and defaults, each in its cell."""
    settings, options = reference.settings(), reference.options()
    assert "| `STREAM_RATER_REPLICATION` | 1 | Replication factor of " in settings
    assert "| `STREAM_RATER_REDIS_CLUSTER` | false |" in settings
    assert "| `STREAM_RATER_SERVE_CORS` | none |" in settings
    assert "| `stream-rater correct void LADDER ROUND_ID` | " in reference.commands()
    assert "| `run` | `--role [all\\|estimator\\|updater]` | Default: all. |" in options
    assert options.count("`--reason") == 1
    assert "| `stream_rater_latency_seconds` | role | " in reference.metrics()
    assert "`kappa` 0.0001" in reference.systems()


# --- events and codes -----------------------------------------------------------------------------


def test_corrections_shown_are_corrections() -> None:
    """An example of each kind, which the service decodes."""
    parts = section(EVENTS, "Corrections").split("\n### ")[1:]
    assert [part.partition("\n")[0] for part in parts] == list(CORRECTIONS)
    for part, kind in zip(parts, CORRECTIONS, strict=True):
        (example,) = blocks(part, "json")
        assert isinstance(from_message(kind, example.encode()), CORRECTIONS[kind])


def test_seeds_shown_are_seeds() -> None:
    """An example of each kind, which the service accepts."""
    parts = section(EVENTS, "Seeds and resets").split("\n### ")[1:]
    assert [part.partition("\n")[0] for part in parts] == list(SEEDS)
    for part, kind in zip(parts, SEEDS, strict=True):
        (example,) = blocks(part, "json")
        headers = (("event-type", kind.encode()),)
        record = Record(0, 0, example.encode(), headers, received_s=2e9)
        assert seed_records.decode(record, ANY_LADDER).kind == kind


def test_every_rejection_code_has_its_reason() -> None:
    """Each code that the sources reject by has its reason, and no other code has one."""
    sources = "".join(path.read_text() for path in (ROOT / "stream_rater").rglob("*.py"))
    raised = set(re.findall(r'Invalid\(\s*"([a-z-]+)"', sources))
    raised |= set(re.findall(r're\.compile\(.*\), "([a-z-]+)"\)', sources))
    raised |= {rule.code for rule in RULES}
    assert raised == set(CODES)


# --- how it works --------------------------------------------------------------------------------


def test_every_fault_is_documented() -> None:
    """Those that are simulated, by the names in the soak's table, and those of `make chaos`."""
    page = text("internals/testing.md")
    assert [label for label in KINDS.values() if label not in page] == []
    documented = {*names(page.split("## Chaos", 1)[1], "fault")}
    assert {each.replace("storm-lobbies", "storm-codeforces") for each in FAULTS} == documented


def test_the_record_is_documented() -> None:
    """Its sizes, and in the changelog its version and that of the kernels."""
    page = " ".join(text("internals/record.md").split())
    assert f"That is the header of {HEADER_SIZE} bytes" in page
    assert f"If there are past performances, {HISTORY_SIZE} bytes follow" in page
    assert f"then {FACTOR_SIZE} bytes for each" in page
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"kernel version {KERNEL_VERSION} and record version {RECORD_VERSION}" in changes


def test_every_package_is_documented() -> None:
    """Where things are: a row for each, and no other."""
    there = {path.parent.name for path in (ROOT / "stream_rater").glob("*/__init__.py")}
    assert set(names(text("internals/index.md"), "package")) == there


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_begins_with_its_title(page: Path) -> None:
    """One of the first level, and no other."""
    titles = re.findall(r"^# (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    assert len(titles) == 1
