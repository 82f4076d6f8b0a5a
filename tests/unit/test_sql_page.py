"""The tables of docs/how-to/sql.md have fields of the event, with types that hold its values."""

import re

import msgspec
import pytest

from stream_rater.contract.events import RatingChanged
from tests.pages import blocks, section, text

PAGE = text("how-to/sql.md")
KEY = "event_key"
"""The column of the record's key."""
ENGINES = ("Apache Flink", "ClickHouse", "RisingWave")
NULLABLE = {"rank", "performance", "season"}
"""Fields that an event may have no number for."""
COLUMN = re.compile(r'[`"]?(\w+)[`"]? ((?:DOUBLE PRECISION|\w+)(?:[<(][^<>()]*[>)])?)')


def tables(engine: str) -> list[dict[str, str]]:
    """The types of the columns of each table that is declared for an engine, by name."""
    declared = []
    for block in blocks(section(PAGE, engine), "sql"):
        for body in re.findall(r"CREATE TABLE \w+ \(\n(.*?)\n\)", block, re.DOTALL):
            body = re.sub(r",?\s*PRIMARY KEY \(\w+\).*", "", body)
            declared.append(dict(COLUMN.findall(body)))
    return declared


def test_every_section_is_read() -> None:
    """This test knows all engines of the page."""
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == list(ENGINES)
    assert [len(tables(each)) for each in ENGINES] == [2, 1, 1]


@pytest.mark.parametrize("engine", ENGINES)
def test_columns_are_fields_of_the_event(engine: str) -> None:
    """With what its JSON has: texts, numbers and flags; the last ones may be missing."""
    fields = {each.encode_name for each in msgspec.structs.fields(RatingChanged)}
    for table in tables(engine):
        assert table.keys() - {KEY} <= fields
        assert {"ladder", "player", "rating"} <= table.keys()
    whole = tables(engine)[0]
    assert whole.keys() >= {"offset", *NULLABLE, "correction"}
    for name in ("mu", "sigma", "rating", "previous_rating"):
        assert re.match(r"DOUBLE|Float64", whole[name])
    assert whole["offset"] in ("BIGINT", "UInt64")
    nullable = {name for name, kind in whole.items() if kind.startswith("Nullable")}
    assert nullable == (NULLABLE if engine == "ClickHouse" else set())
    inner = dict(COLUMN.findall(re.split(r"[<(]", whole["correction"], maxsplit=1)[1]))
    assert list(inner) == ["cause", "offset", "round_id"]


def test_each_reads_what_is_committed() -> None:
    """Flink has an option for it; the others always do."""
    flink = blocks(section(PAGE, "Apache Flink"), "sql")
    assert all("'properties.isolation.level' = 'read_committed'" in each for each in flink)
