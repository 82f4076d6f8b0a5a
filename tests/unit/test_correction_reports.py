"""The log and the metrics show the progress of a correction."""

from typing import Any

import structlog

from stream_rater.contract.errors import LogTrouble
from stream_rater.runtime.correction_reports import LOG_EVERY_S, MAX_UNFINISHED, CorrectionReports
from stream_rater.runtime.lag import Lag
from stream_rater.runtime.metrics import Metrics, ServiceObserver
from tests.builders.cases import cases


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def info(self, event: str, **fields: object) -> None:
        """Keep a line."""
        self.lines.append({"event": event, **fields})

    warning = info


PLACE = {"ladder": "eu", "partition": 1, "offset": 90}


def test_one_line_at_each_end_and_few_between() -> None:
    """With the share that is done, and at the end with the seconds it took."""
    now, log = [100.0], Lines()
    reports = CorrectionReports(log, lambda: now[0])  # type: ignore[arg-type]
    for progress in (0.0, 0.1, 0.2, 0.5, 0.6):
        reports.progressed("eu", 1, 90, progress)
        now[0] += 0.4 * LOG_EVERY_S
    reports.done("eu", 1, 90, 2)
    assert log.lines == [
        {"event": "correcting", **PLACE},
        {"event": "correcting", **PLACE, "done": "50%"},
        {"event": "corrected", **PLACE, "refused": 2, "took_s": 20.0},
    ]


def test_progress_is_below_one_until_all_is_sent() -> None:
    """It is one where no correction is applied, and where another worker owns the partition."""
    reports = CorrectionReports(Lines(), lambda: 0.0)  # type: ignore[arg-type]
    assert reports.progress(1) == 1.0
    reports.progressed("eu", 1, 90, 0.25)
    reports.progressed("us", 2, 40, 1.0)
    assert [reports.progress(p) for p in (0, 1, 2)] == [1.0, 0.25, MAX_UNFINISHED]
    reports.keep_only({2})
    reports.done("us", 2, 40, 0)
    assert [reports.progress(p) for p in (1, 2)] == [1.0, 1.0]


@cases("interrupted", [False, True])
def test_a_correction_is_counted_once_it_is_finished(interrupted: bool) -> None:
    """A correction that starts over reports no progress."""
    metrics, lag, log = Metrics(), Lag(), structlog.get_logger()
    observer = ServiceObserver(metrics, "estimator", log)
    metrics.registry.register(lag)
    lag.add("rounds", lambda: {1: 95}, observer, corrections=True)
    lag.add("parts", lambda: {1: 95}, observer, corrections=False)

    def progress(topic: str) -> float | None:
        labels = {"topic": topic, "partition": "1"}
        return metrics.registry.get_sample_value("stream_rater_correction_progress", labels)

    observer.correcting("eu", 1, 90, 0.5)
    assert (progress("rounds"), progress("parts")) == (0.5, None)
    if interrupted:
        observer.started_over(LogTrouble("kafka: gone"))
    else:
        observer.corrected("eu", 1, 90, 0)
    assert progress("rounds") == 1.0
    found = metrics.registry.get_sample_value("stream_rater_corrections_total")
    assert found == float(not interrupted)
