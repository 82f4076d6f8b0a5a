"""Tables of what passed on other servers."""

from tests.matrix import Counts, has_failed, table, with_table

ROWS = {"Kafka 3": {"the log": Counts(5, 0, 1)}, "Kafka 4": {"the log": Counts(4, 2, 0)}}
EMPTY = "before\n<!-- brokers: begin -->\n<!-- brokers: end -->\nafter\n"


def test_rows_of_other_titles_stay() -> None:
    """So does the text around. A failed test fails all; what was not run is no failure."""
    both = with_table(EMPTY, "brokers", table("broker", ["the log"], ROWS))
    assert both == (
        "before\n<!-- brokers: begin -->\n| broker | the log |\n|---|---|\n"
        "| Kafka 3 | 5 / 0 / 1 |\n| Kafka 4 | 4 / 2 / 0 |\n<!-- brokers: end -->\nafter\n"
    )
    again = table("broker", ["the log"], {"Kafka 4": {"the log": Counts(6, 0, 0)}})
    assert with_table(both, "brokers", again) == both.replace("4 / 2 / 0", "6 / 0 / 0")
    assert has_failed(ROWS)
    assert not has_failed({"Kafka 3": ROWS["Kafka 3"], "kfake": {"the log": None}})
