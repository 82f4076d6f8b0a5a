"""Each alert fires when it should, and not before (by `promtool test rules`). The dashboard."""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import yaml

from local.prometheus_node import DASHBOARD, RULES
from local.tools import ROOT
from tests import pages
from tests.tools import promtool
from tests.waits import HANGS_S
from watching.ask import panels

RUNBOOK = pages.text("operations/runbook.md")
VALUES = yaml.safe_load((ROOT / "helm" / "stream-rater" / "values.yaml").read_text())
SITE = ROOT / "deploy" / "tools" / "zensical.toml"


def rules() -> list[dict[str, Any]]:
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}

JOB = {"job": "stream-rater"}
A = JOB | {"instance": "a"}


@dataclass(frozen=True)
class Case:
    """Series, a value a minute. The alert fires at minute `fires`, with these labels only."""

    not_yet: int
    fires: int
    series: dict[str, str]
    labels: Sequence[dict[str, str]] = (A,)


def of(instance: str, **labels: str) -> str:
    """The labels of a scraped series."""
    reported = JOB | {"instance": instance} | labels
    return "{" + ", ".join(f'{name}="{value}"' for name, value in reported.items()) + "}"


def away(instance: str, until: int = 40, **labels: str) -> dict[str, str]:
    """Redis is away, and another alert says so."""
    name = "stream_rater_dependency_up" + of(instance, dependency="redis", **labels)
    return {name: f"0x{until} 1x20"}


def events(job: str, *phases: tuple[int, int | None]) -> dict[str, str]:
    """A job's latency: for so many minutes, so many of 1,000 events a minute are late, or None."""
    late = [each for minutes, of_each in phases for each in [of_each] * minutes]
    timed = accumulate(0 if each is None else 1000 for each in late)
    in_time = accumulate(0 if each is None else 1000 - each for each in late)
    name = "stream_rater_event_latency_seconds_"
    return {
        f'{name}count{{job="{job}"}}': " ".join(map(str, timed)),
        f'{name}bucket{{job="{job}", le="1.0"}}': " ".join(map(str, in_time)),
    }


P0 = {"topic": "round-completed", "partition": "0"}  # Of a partition.

CASES = {
    "StreamRaterDown": Case(not_yet=3, fires=5, series={
        "up" + of("a"): "1 1 0x20",
        "up" + of("b"): "1 0 1x20",  # back after a minute
        'up{job="kafka", instance="c"}': "0x20",
    }),
    "StreamRaterRoleAbsent": Case(not_yet=4, fires=6, labels=[JOB | {"role": "estimator"}], series={
        "up" + of("a"): "1x20",
        "stream_rater_owned" + of("a", role="updater"): "0x20",
        'up{job="stream-rater-down", instance="a"}': "0x20",
        "up" + of("b", job="other/stream-rater"): "1x20",  # a release that has both
        "stream_rater_owned" + of("b", job="other/stream-rater", role="estimator"): "1x20",
        "stream_rater_owned" + of("b", job="other/stream-rater", role="updater"): "1x20",
    }),
    "StreamRaterCrashing": Case(not_yet=6, fires=8, series={
        "process_start_time_seconds" + of("a"): "0 0 0 1 1 2 2 3x30",
        "process_start_time_seconds" + of("b"): "0 0 0 1 1 2 2 2x30",  # updates
    }),
    "StreamRaterNotReady": Case(not_yet=5, fires=7, series={
        "stream_rater_ready" + of("a"): "1 0x20",
        "stream_rater_ready" + of("b"): "0 0 0 1 0 0 0 1 0 0 0 1",  # as when it starts
        **{"stream_rater_ready" + of(each): "0x20" for each in "cde"},
        **away("c"),
        "stream_rater_refused_ladders" + of("d"): "1x20",
        "stream_rater_refused_shards" + of("e"): "1x20",
    }),
    "StreamRaterPartitionUnowned": Case(not_yet=4, fires=6, series={
        "stream_rater_unattended" + of("a", role="updater"): "1x20",
        "stream_rater_unattended" + of("b", role="updater"): "2x20",
        # A worker that is not scraped owns the others, and finishes records.
        "stream_rater_owned" + of("a", role="estimator"): "2x20",
        "stream_rater_partitions" + of("a", role="estimator"): "4x20",
        "stream_rater_unattended" + of("a", role="estimator"): "0 1 0 0 1 1 0 0x20",
        "stream_rater_unattended" + of("c", job="away", role="updater"): "1x20",
        **away("c", job="away"),
    }, labels=[JOB | {"role": "updater"}]),
    "StreamRaterNothingRated": Case(not_yet=6, fires=9, labels=[JOB], series={
        f'stream_rater_log_end_offset{{job="{job}", instance="a", topic="{topic}"}}': values
        for job, of_topics in {
            "stream-rater": {"round-completed": "0x4 0+50x30", "rating-changed": "9x40",
                             "performance-estimated": "0+1x40", "round-rejected": "4x40"},
            "rated": {"x.round-completed": "0+50x40", "x.rating-changed": "0+1x40",
                      "x.round-rejected": "0x40"},
            "rejected": {"round-completed": "0+50x40", "rating-changed": "0x40",
                         "round-rejected": "0+1x40"},
            "idle": {"round-completed": "7x40", "rating-changed": "7x40", "round-rejected": "0x40"},
            **{job: {"round-completed": "0+50x40", "rating-changed": "0x40",
                     "round-rejected": "0x40"} for job in ("correcting", "away")},
        }.items()
        for topic, values in of_topics.items()
    } | away("a", job="away") | {
        'stream_rater_correction_progress{job="correcting", instance="a", partition="0"}':
        "0+0.02x40",
    }),
    "StreamRaterDependencyDown": Case(not_yet=2, fires=5, labels=[A | {"dependency": "redis"}],
                                      series={
        "stream_rater_dependency_up" + of("a", dependency="redis"): "1 1 0x20",
        "stream_rater_dependency_up" + of("a", dependency="kafka"): "1x20",
        "stream_rater_dependency_up" + of("b", dependency="redis"): "1 0 1x20",
    }),
    "StreamRaterPartitionStalled": Case(not_yet=1, fires=8, labels=[A | P0], series={
        "stream_rater_lag_records" + of("a", **P0): "5x20",
        "stream_rater_next_offset" + of("a", **P0): "7x20",
        # Busy, but it moves; idle behind a transaction's marker.
        "stream_rater_lag_records" + of("b", topic="t", partition="1"): "5x20",
        "stream_rater_next_offset" + of("b", topic="t", partition="1"): "7+1x20",
        "stream_rater_lag_records" + of("b", topic="t", partition="2"): "1x20",
        "stream_rater_next_offset" + of("b", topic="t", partition="2"): "7x20",
        # A correction explains it; one on another worker does not.
        "stream_rater_lag_records" + of("c", **P0): "5x20",
        "stream_rater_next_offset" + of("c", **P0): "7x20",
        "stream_rater_correction_progress" + of("c", **P0): "1 0+0.04x20",
        "stream_rater_correction_progress" + of("a", **P0): "1x20",
        **{f"stream_rater_{of_p0}" + of(each, **P0): "7x20" for each in "def"
           for of_p0 in ("lag_records", "next_offset")},
        **away("d"),
        "stream_rater_refused_ladders" + of("e"): "1x20",
        "stream_rater_refused_shards" + of("f"): "1x20",
    }),
    "StreamRaterCorrectionStuck": Case(not_yet=17, fires=20, labels=[A | P0], series={
        "stream_rater_correction_progress" + of("a", **P0): "1 0.1 0.2 0.3x30",
        "stream_rater_correction_progress" + of("b", **P0): "1 0+0.01x30",  # slow
        "stream_rater_correction_progress" + of("c", **P0): "1x30",  # none
    }),
    "StreamRaterLagGrowing": Case(not_yet=7, fires=12, series={
        "stream_rater_lag_records" + of("a", **P0): "0+3000x30",
        "stream_rater_lag_records" + of("a", topic="t", partition="0"): "90000-3000x30",
        "stream_rater_lag_records" + of("a", job="away"): "0+3000x30",
        **away("a", job="away"),
    }, labels=[JOB | {"topic": "round-completed"}]),
    "StreamRaterSlow": Case(not_yet=400, fires=415, series={
        **events("healthy", (500, 5)),
        **events("fast", (400, 0), (100, 1000)),
        **events("slow", (220, 0), (280, 120)),
        **events("short", (395, 0), (6, 1000), (100, 0)),
        **events("over", (375, 0), (15, 1000), (100, 0)),
        **events("over slowly", (155, 0), (220, 120), (100, 0)),
        **{name: f"_x405 {text}" for name, text in events("new", (3, 1000), (90, 0)).items()},
        **events("idle", (500, None)),
        **events("away", (400, 0), (100, 1000)),
        **away("a", job="away", until=408),
        **events("stalled", (400, 0), (100, None)),  # StreamRaterNothingRated sees it
    }, labels=[{"job": "fast"}, {"job": "slow"}]),
    "StreamRaterRejecting": Case(not_yet=9, fires=13, labels=[JOB], series={
        "stream_rater_rounds_total" + of("a", outcome="rejected"): "0+60x30",
        "stream_rater_rounds_total" + of("a", outcome="accepted"): "0+940x30",
        'stream_rater_rounds_total{job="other", outcome="rejected"}': "0+40x30",
        'stream_rater_rounds_total{job="other", outcome="accepted"}': "0+960x30",
    }),
    "StreamRaterPartitionResting": Case(not_yet=4, fires=6, series={
        "stream_rater_resting_partitions" + of("a"): "1x20",
        "stream_rater_resting_partitions" + of("b"): "1 1 1 0 1 1 1 0 1 1 1 0",
    }),
    "StreamRaterOwnersFlapping": Case(not_yet=10, fires=25, series={
        "stream_rater_assignments_total" + of("a", role="updater"): "0+1x40",
        "stream_rater_assignments_total" + of("b", role="updater"): "0 0 0 5x40",  # an upgrade
        "stream_rater_restarts_total" + of("a", role="estimator", cause="kafka"): "0+0.4x40",
        "stream_rater_restarts_total" + of("a", role="estimator", cause="redis"): "0+0.4x40",
        "stream_rater_assignments_total" + of("a", job="away", role="updater"): "0+3x40",
        **away("a", job="away"),
    }, labels=[JOB | {"role": "updater"}, JOB | {"role": "estimator"}]),
    "StreamRaterRedisTables": Case(not_yet=29, fires=40, labels=[JOB], series={
        "stream_rater_sampled_hashes_total" + of("a", encoding="hashtable"): "0+1x120",
        "stream_rater_sampled_hashes_total" + of("a", encoding="listpack"): "0+5x120",
        'stream_rater_sampled_hashes_total{job="b", encoding="hashtable"}': "0+1x120",
        'stream_rater_sampled_hashes_total{job="b", encoding="listpack"}': "0+20x120",
    }),
    "StreamRaterStoreBehindLog": Case(not_yet=2, fires=4, series={
        "stream_rater_updates_total" + of("a", outcome="replayed"): "0 0 0 90x20",
        "stream_rater_updates_total" + of("a", outcome="applied"): "0+900x20",
        "stream_rater_updates_total" + of("b", outcome="replayed"): "90x20",
    }, labels=[A | {"outcome": "replayed"}]),
    "StreamRaterShardRefused": Case(not_yet=1, fires=3, series={
        "stream_rater_refused_shards" + of("a"): "2x20",
        "stream_rater_refused_shards" + of("b"): "1 1 0x20",
    }),
    "StreamRaterLadderRefused": Case(not_yet=1, fires=3, series={
        "stream_rater_refused_ladders" + of("a"): "1x20",
    }),
    "StreamRaterAccessFailing": Case(not_yet=1, fires=3, series={
        "stream_rater_restarts_total" + of("a", role="updater", cause="tls"): "0 0 1x20",
        "stream_rater_restarts_total" + of("a", role="estimator", cause="kafka"): "0 0 1x20",
        # Denied, and gone before the next scrape.
        'stream_rater_restarts_total{job="b", role="estimator", cause="denied"}': "0 0 1",
    }, labels=[JOB | {"role": "updater"}, {"job": "b", "role": "estimator"}]),
    # promtool's clock begins at 0.
    "StreamRaterCertificateExpiring": Case(not_yet=59, fires=62, series={
        "stream_rater_certificate_expiry_timestamp_seconds"
        + of("a", server="kafka", use="client"): f"{6 * 86400}x90",
        "stream_rater_certificate_expiry_timestamp_seconds"
        + of("a", server="redis", use="client"): f"{8 * 86400}x90",
    }, labels=[A | {"server": "kafka", "use": "client"}]),
    "StreamRaterClockSkew": Case(not_yet=4, fires=6, series={
        "stream_rater_clock_timestamp_seconds" + of("a"): "3+60x20",
        "stream_rater_clock_timestamp_seconds" + of("b"): "1+60x20",
        "stream_rater_clock_timestamp_seconds" + of("c"): "-3+60x20",
        "stream_rater_clock_ahead_seconds" + of("d", role="estimator"): "3x20",
        "stream_rater_clock_ahead_seconds" + of("e", role="estimator"): "3 3 0 3 3 0 3 3 0 3",
    }, labels=[A, A | {"instance": "c"}, A | {"instance": "d", "role": "estimator"}]),
    "StreamRaterApiDown": Case(not_yet=3, fires=5, series={
        'up{job="stream-rater-serve/games/r", instance="a"}': "1 1 0x20",
        "up" + of("b"): "0x20",  # a worker has an alert of its own
    }, labels=[{"job": "stream-rater-serve/games/r", "instance": "a"}]),
    "StreamRaterApiBehind": Case(not_yet=4, fires=6, labels=[A, A | {"instance": "b"}], series={
        "stream_rater_serve_caught_up" + of("a"): "0x20",
        "stream_rater_serve_lag" + of("a"): "0x20",
        "stream_rater_serve_caught_up" + of("b"): "1x20",
        "stream_rater_serve_lag" + of("b"): "20000x20",
        "stream_rater_serve_caught_up" + of("c"): "1x20",
        "stream_rater_serve_lag" + of("c"): "20000 20000 0x20",  # caught up
    }),
    "StreamRaterApiFailing": Case(not_yet=6, fires=12, labels=[JOB], series={
        "stream_rater_serve_requests_total" + of("a", operation="p", status="503"): "0x5 0+10x20",
        'stream_rater_serve_requests_total{job="other", operation="p", status="404"}': "0+100x30",
    }),
    "StreamRaterApiNotWriting": Case(not_yet=7, fires=12, labels=[A], series={
        "stream_rater_serve_rounds_total" + of("a", outcome="unavailable"): "0x5 0+1x20",
        "stream_rater_serve_rounds_total" + of("a", outcome="written"): "0+100x30",
        "stream_rater_serve_rounds_total" + of("b", outcome="invalid"): "0+10x30",
        "stream_rater_serve_rounds_total" + of("c", outcome="busy"): "0 5x30",  # once
    }),
    "StreamRaterApiCrowded": Case(not_yet=8, fires=20, labels=[A], series={
        "stream_rater_serve_room_total" + of("a", cause="all"): "0x5 0+30x20",
        "stream_rater_serve_room_total" + of("a", cause="address"): "0x5 0+30x20",
        "stream_rater_serve_room_total" + of("b", cause="all"): "0+10x30",
    }),
    "StreamRaterKernelsDiffer": Case(not_yet=59, fires=62, labels=[JOB], series={
        "stream_rater_info" + of("a", kernel="1", version="1.0"): "1x90",
        "stream_rater_info" + of("b", kernel="2", version="1.1"): "1x90",
        'stream_rater_info{job="other", instance="c", kernel="1", version="1.0"}': "1x90",
        'stream_rater_info{job="other", instance="d", kernel="1", version="1.1"}': "1x90",
    }),
}  # fmt: skip


def firing(alert: str, minute: int, labels: Sequence[dict[str, str]]) -> dict[str, Any]:
    """promtool's test that these, and only these, fire at that minute."""
    common = {"alertname": alert, "alertstate": "firing"} | ALERTS[alert]["labels"]
    reported = [", ".join(f'{k}="{v}"' for k, v in (common | each).items()) for each in labels]
    return {
        "expr": f'ALERTS{{alertname="{alert}", alertstate="firing"}}',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": f"ALERTS{{{each}}}", "value": 1} for each in reported],
    }


def run_promtool(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [promtool(), *arguments], capture_output=True, text=True, timeout=HANGS_S, check=False
    )


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """Every case; each alert has one."""
    assert set(CASES) == set(ALERTS)
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": s, "values": v} for s, v in case.series.items()],
            "promql_expr_test": [
                firing(alert, case.not_yet, []),
                firing(alert, case.fires, case.labels),
            ],
        }
        for alert, case in CASES.items()
    ]
    whole = {"rule_files": [*map(str, RULES)], "evaluation_interval": "1m", "tests": tests}
    path = tmp_path / "tests.yaml"
    path.write_text(json.dumps(whole))
    done = run_promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_alert_says_what_to_do() -> None:
    """Severity, summary, description, and a section of the runbook, which is a page of the site."""
    headings = re.findall(r"^#+ (.*)$", RUNBOOK, re.MULTILINE)
    url = VALUES["prometheusRule"]["runbookUrl"]
    site = re.findall(r'^site_url = "(.*)"$', SITE.read_text(), re.MULTILINE)
    assert url == f"{site[0]}operations/runbook/"
    for alert, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("critical", "warning"), alert
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, alert
        assert rule["annotations"]["runbook_url"] == f"{url}#{alert.lower()}"
        assert alert in headings


def test_rules_are_valid() -> None:
    """Prometheus and its linter accept them. Recorded names are level:metric:operations."""
    done = run_promtool("check", "rules", "--lint=all", "--lint-fatal", *map(str, RULES))
    assert done.returncode == 0, done.stdout + done.stderr
    for rule in (each for each in rules() if "record" in each):
        kept = re.findall(r"by \(([^)]*)\)", rule["expr"])[0].replace(", le", "")
        assert rule["record"].split(":")[0] == kept.replace(", ", "_")


def test_panels_show_what_is_watched() -> None:
    """Each leads to a section of the runbook. Single numbers stand first, red or green. Rare
    rejections are shown per minute. Seeds and the door have panels in their rows."""
    headings = re.findall(r"^#+ (.*)$", RUNBOOK, re.MULTILINE)
    sections = {re.sub(r"[^a-z]+", "-", each.lower()) for each in headings}
    shown = {panel.title: panel for panel in panels("1m")}
    for title, panel in shown.items():
        url, _, section = panel.link.partition("#")
        assert url == VALUES["prometheusRule"]["runbookUrl"] and section in sections, title
        assert bool(panel.colours) == (panel.row == "Now"), title
    assert shown["Rejections by code"].unit == "cpm"
    assert shown["Seeds and resets"].row == "Corrections and seeds"
    assert shown["Rounds and corrections by HTTP"].row == "The API"


def test_panels_do_not_overlap() -> None:
    """Each has an id and a place of its own."""
    whole = json.loads(DASHBOARD.read_text())["panels"]
    assert len({each["id"] for each in whole}) == len(whole)
    taken = [
        place
        for at in (each["gridPos"] for each in whole)
        for place in product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"]))
    ]
    assert len(set(taken)) == len(taken)
