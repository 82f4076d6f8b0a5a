"""Seeds and resets in the metrics and the log."""

import structlog

from stream_rater.pipeline.ports import Position, StoredShard
from stream_rater.pipeline.updater.seeded_changes import compute_seeds
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.runtime import log
from stream_rater.runtime.metrics import Metrics, ServiceObserver
from tests.builders.seeding import seed_part
from tests.unit.test_seeded_changes import batch_of, belief


def test_rows_are_counted_by_what_they_did() -> None:
    """Applied, applied before, and without effect. The last ones are also logged."""
    metrics = Metrics()
    part, records = seed_part((9, "abcd")), [None, belief(), belief(), belief(last=9)]
    change = compute_seeds(batch_of(part), {0: StoredShard(Position(), records)})[0]
    with structlog.testing.capture_logs() as lines:
        updater = Updater(1, observer=ServiceObserver(metrics, "updater", log.logger("updater")))
        updater._report(0, change, refilled=False)
    value = metrics.registry.get_sample_value
    assert value("stream_rater_updates_total", {"outcome": "applied"}) == 1
    assert value("stream_rater_updates_total", {"outcome": "repeated"}) == 1
    assert value("stream_rater_seed_rows_without_effect_total") == 2
    (line,) = [each for each in lines if each["log_level"] == "warning"]
    assert (line["shard"], line["offset"], line["players"]) == (0, 1, 2)


def test_a_seed_is_counted_once_its_parts_are_sent() -> None:
    """By the estimator."""
    metrics = Metrics()
    observer = ServiceObserver(metrics, "estimator", log.logger("estimator"))
    observer.seeded("a", 0, 7, 5000)
    assert metrics.registry.get_sample_value("stream_rater_seeds_total") == 1
