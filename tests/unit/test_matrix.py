"""Tables of what passed on other servers."""

from tests.matrix import Counts, has_failed, table, with_table

ROWS = {"Kafka 3": {"the log": Counts(5, 0, 1)}, "Kafka 4": {"the log": Counts(4, 2, 0)}}
EMPTY = "before\n<!-- brokers: begin -->\n<!-- brokers: end -->\nafter\n"


def test_rows_of_other_titles_stay() -> None:
    """So one release can be tested again. The text around the table stays, too."""
    both = with_table(EMPTY, "brokers", table("broker", ["the log"], ROWS))
    assert both == (
        "before\n<!-- brokers: begin -->\n| broker | the log |\n|---|---|\n"
        "| Kafka 3 | 5 / 0 / 1 |\n| Kafka 4 | 4 / 2 / 0 |\n<!-- brokers: end -->\nafter\n"
    )
    again = table("broker", ["the log"], {"Kafka 4": {"the log": Counts(6, 0, 0)}})
    assert with_table(both, "brokers", again) == both.replace("4 / 2 / 0", "6 / 0 / 0")


def test_what_was_not_run_is_a_dash() -> None:
    """It is no failure."""
    rows = {"kfake": {"the log": None}}
    assert table("broker", ["the log"], rows).splitlines()[-1] == "| kfake | – |"
    assert not has_failed(rows)


def test_a_failed_test_fails_all() -> None:
    assert has_failed(ROWS)
    assert not has_failed({"Kafka 3": ROWS["Kafka 3"]})
