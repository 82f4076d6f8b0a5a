"""How the topics are made, and what is said of those that others made."""

from stream_rater.adapters.topics import _wanted, fragile
from stream_rater.config import Settings

TOPICS = ("round-completed", "performance-estimated", "rating-changed", "round-rejected")


def test_three_copies_need_two_to_write() -> None:
    """All four topics; with fewer copies Kafka's own default holds."""
    three = _wanted(Settings(replication=3))
    assert {name: held.get("min.insync.replicas") for name, (_, held) in three.items()} == (
        dict.fromkeys(TOPICS, "2")
    )
    for copies in (1, 2):
        made = _wanted(Settings(replication=copies)).values()
        assert not any("min.insync.replicas" in held for _, held in made)


def test_topics_that_one_broker_may_lose_are_named() -> None:
    """In one line; those with one copy, or two to write, are not."""
    held = {name: {"min.insync.replicas": "1"} for name in TOPICS}
    held["rating-changed"] = {"min.insync.replicas": "2"}
    copies = dict.fromkeys(TOPICS, 3) | {"round-rejected": 1}
    said = fragile(copies, held)
    assert said.startswith(
        "kafka: min.insync.replicas of round-completed, performance-estimated is 1: "
    )
    assert "\n" not in said
    assert fragile(dict.fromkeys(TOPICS, 1), held) == ""
