"""The reference is what `make reference` writes from the code; other pages list what is there."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import reference

from local.tools import ROOT
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.corrections import KINDS as CORRECTIONS
from stream_rater.contract.corrections import from_message
from stream_rater.contract.errors import REJECTIONS
from stream_rater.contract.events import RatingChanged
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import SEEDS
from stream_rater.rating.record import FACTOR_SIZE, HEADER_SIZE, HISTORY_SIZE
from stream_rater.rating.record import VERSION as RECORD_VERSION
from stream_rater.rounds.correction_records import decode_seed
from stream_rater.rounds.validation import RULES
from tests.chaos.faults import FAULTS
from tests.pages import blocks, names, section, shown, text
from tests.simulation.faults import KINDS

EVENTS = text("reference/events.md")


def test_the_reference_is_what_the_code_says() -> None:
    """Generating it again changes nothing, and each part is there once."""
    texts = {shown(page): page.read_text() for page in reference.PAGES}
    assert [page for page, text in texts.items() if reference.written(text) != text] == []
    assert reference.OPENAPI.read_text() == reference.openapi()
    parts = [part for text in texts.values() for part in reference.PART.finditer(text)]
    for kind, due in (("generated", reference.GENERATED), ("checked", reference.CHECKED)):
        assert sorted(part[3] for part in parts if part[2] == kind) == sorted(due)


def test_corrections_and_seeds_shown_are_such() -> None:
    """An example of each kind, which the service accepts."""
    for heading, kinds in (("Corrections", CORRECTIONS), ("Seeds and resets", SEEDS)):
        parts = section(EVENTS, heading).split("\n### ")[1:]
        assert [part.partition("\n")[0] for part in parts] == list(kinds)
        for part, kind in zip(parts, kinds, strict=True):
            (example,) = blocks(part, "json")
            if heading == "Corrections":
                from_message(CORRECTIONS[kind], example.encode())
            else:
                headers = (("event-type", kind.encode()),)
                record = Record(0, 0, example.encode(), headers, received_s=2e9)
                assert decode_seed(record, ANY_LADDER).kind == kind


def parts_of(part: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON value, without those in examples."""
    if isinstance(part, dict):
        yield part
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for each in inner:
        if part is not each and not (isinstance(part, dict) and part.get("example") is each):
            yield from parts_of(each)


def test_generators_of_clients_can_read_the_api() -> None:
    """In OpenAPI 3.0, with the bits of each number, who needs a token, how long to wait, and all
    fields of each kind of correction."""
    api = msgspec.json.decode(reference.openapi())
    assert api["openapi"].startswith("3.0.") and api["servers"]
    for part in parts_of(api):
        if (kind := str(part.get("type"))) in ("number", "integer"):
            assert part["format"] == ("double" if kind == "number" else "int64"), part
        assert kind != "null" and part.get("exclusiveMinimum", True) is True, part
    for one in (each for path in api["paths"].values() for each in path.values()):
        assert one["security"] in ([{"token": []}], [{}, {"token": []}])
        assert all("Retry-After" in one["responses"][each]["headers"] for each in ("429", "503"))
    schemas = api["components"]["schemas"]
    named = schemas["CorrectionReport"]["discriminator"]["mapping"]
    assert named.keys() == CORRECTIONS.keys() | SEEDS.keys()
    for name, of in (CORRECTIONS | SEEDS).items():
        found = schemas[named[name].rpartition("/")[2]]
        fields = {each.encode_name: each.required for each in msgspec.structs.fields(of)}
        assert found["properties"].keys() == fields.keys()
        assert found["properties"]["event_type"]["enum"] == [name]
        needed = {each for each, required in fields.items() if required}
        assert {*found["required"]} == needed - {"ladder"} | {"event_type"}


def test_every_rejection_code_has_its_reason() -> None:
    """Each code that the sources reject by has its reason, and no other code has one."""
    sources = "".join(path.read_text() for path in (ROOT / "stream_rater").rglob("*.py"))
    raised = set(re.findall(r'Invalid\(\s*"([a-z-]+)"', sources))
    raised |= set(re.findall(r're\.compile\(.*\), "([a-z-]+)"\)', sources))
    raised |= {rule.code for rule in RULES}
    assert raised == REJECTIONS.keys()


def test_what_there_is_is_documented() -> None:
    """Faults, packages, sizes of the record, and in the changelog its and the kernels' version."""
    page = text("internals/testing.md")
    assert [label for label in KINDS.values() if label not in page] == []
    documented = {*names(page.split("## Chaos", 1)[1], "fault")}
    assert {each.replace("storm-lobbies", "storm-codeforces") for each in FAULTS} == documented
    there = {path.parent.name for path in (ROOT / "stream_rater").glob("*/__init__.py")}
    assert set(names(text("internals/index.md"), "package")) == there
    page = " ".join(text("internals/record.md").split())
    assert f"That is the header of {HEADER_SIZE} bytes" in page
    assert f"If there are past performances, {HISTORY_SIZE} bytes follow" in page
    assert f"then {FACTOR_SIZE} bytes for each" in page
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"kernel version {KERNEL_VERSION} and record version {RECORD_VERSION}" in changes


# --- how-to/sql.md: tables with fields of the event, and types that hold its values ---------------

SQL = text("how-to/sql.md")
ENGINES = {"Apache Flink": 2, "ClickHouse": 1, "RisingWave": 1}  # The number of tables for each.
NULLABLE = {"rank", "performance", "season"}  # Fields that an event may have no number for.
COLUMN = re.compile(r'[`"]?(\w+)[`"]? ((?:DOUBLE PRECISION|\w+)(?:[<(][^<>()]*[>)])?)')


def tables(engine: str) -> list[dict[str, str]]:
    """The types of the columns of each table that is declared for an engine, by name."""
    declared = []
    for block in blocks(section(SQL, engine), "sql"):
        for body in re.findall(r"CREATE TABLE \w+ \(\n(.*?)\n\)", block, re.DOTALL):
            body = re.sub(r",?\s*PRIMARY KEY \(\w+\).*", "", body)
            declared.append(dict(COLUMN.findall(body)))
    return declared


def test_columns_of_sql_are_fields_of_the_event() -> None:
    """Types fit the JSON, and all tables read what is committed."""
    fields = {each.encode_name for each in msgspec.structs.fields(RatingChanged)}
    assert re.findall(r"^## (.*)$", SQL, re.MULTILINE) == list(ENGINES)
    for engine, count in ENGINES.items():
        declared = tables(engine)
        assert len(declared) == count
        for table in declared:
            assert table.keys() - {"event_key"} <= fields  # and the column of the record's key
            assert {"ladder", "player", "rating"} <= table.keys()
        whole = declared[0]
        assert whole.keys() >= {"offset", *NULLABLE, "correction"}
        for name in ("mu", "sigma", "rating", "previous_rating"):
            assert re.match(r"DOUBLE|Float64", whole[name])
        assert whole["offset"] in ("BIGINT", "UInt64")
        nullable = {name for name, kind in whole.items() if kind.startswith("Nullable")}
        assert nullable == (NULLABLE if engine == "ClickHouse" else set())
        inner = dict(COLUMN.findall(re.split(r"[<(]", whole["correction"], maxsplit=1)[1]))
        assert list(inner) == ["cause", "offset", "round_id"]
    flink = blocks(section(SQL, "Apache Flink"), "sql")
    assert all("'properties.isolation.level' = 'read_committed'" in each for each in flink)
