"""A real Prometheus scrapes a worker with our rules. Under load, dashboard and alerts have data."""

import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
import yaml

from local.prometheus_node import RULES, start_prometheus
from local.servers import Addresses
from local.tools import ROOT
from tests import real, tools
from tests.builders.lines import Bytes, a_message, a_round
from tests.builders.serves import serves_here
from tests.integration.processes import Start, WorkerProcess, complaints, environment_of, workers
from tests.integration.secured import make_certificates, secured_redis
from tests.integration.topics import Finished, produce
from tests.real import SettingsFactory
from tests.unit import test_readme as runbook
from tests.unit.test_alerts import ALERTS
from tests.waits import HANGS_S, wait_until
from watching.__main__ import asked as questions
from watching.ask import Panel, Prometheus, panels

EVERY = "3000ms"  # Between two scrapes, and the longest that one may take on a busy machine.
ALL_OF_IT = "1h"  # A window that has the whole load in it, however long that took.
ROUNDS_AT_ONCE = 40
SHOWN = list(panels(rate_interval=ALL_OF_IT))
SELECTOR = re.compile(r"\b(?:stream_rater_\w+|job\w*:[\w:]+|process_\w+|up)\b(?:\{[^}]*\})?")
"""A metric in an expression, with its matchers."""
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[<>=!]=|[<>(){}\[\]]|\b(?:and|or)\b|\bunless on \([^)]*\)')
ABSENT = re.compile(r"absent\((.*)\)")
LABELLED = re.compile(r'label_replace\((.*?),\s*"role",.*\)', re.DOTALL)


def load(first: int) -> list[Bytes]:
    """Valid rounds and one that is not."""
    about = {"ladder": "ranked-eu", "completed_at": "2020-05-01T20:15:05Z"}
    valid = [
        a_message(a_round(number, *(f"p{(number * 3 + i) % 50}" for i in range(5)), **about))
        for number in range(first, first + ROUNDS_AT_ONCE)
    ]
    return [*valid, Bytes(b"bad")]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A client certificate. Nobody asks for it here, but its expiry is watched."""
    path = tmp_path_factory.mktemp("certificate") / "client.pem"
    path.write_bytes(trustme.CA().issue_cert("client").cert_chain_pems[0].bytes())
    return str(path)


class Watched(NamedTuple):
    prometheus: str
    worker: WorkerProcess
    log: Path
    seen_s: float  # Unix time when all data were there; later, they leave windows.
    lasted_s: float  # How long the load took, from its first round on.


@pytest.fixture(scope="module")
def watched(
    addresses: Addresses, certificate: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    """A Prometheus that has watched a worker rate rounds, and `serve` answer questions."""
    tools.prometheus()
    folder = tmp_path_factory.mktemp("watched")
    with real.a_place(addresses) as at, workers(folder) as start, serves_here() as serve:
        variables = {"STREAM_RATER_KAFKA_SSL_CERTIFICATE": certificate}
        worker = start(at, forked=True, **variables)
        target, api = (each.url.removeprefix("http://") for each in (worker, serve(at)))
        with (
            start_prometheus(folder / "db", workers=[target], apis=[api], every=EVERY) as server,
            questions(api),
        ):
            asked = Prometheus(server.address)
            finished = Finished(at)
            wait_until(lambda: bool(asked.now("stream_rater_ready")), "counters are seen at zero")
            sent, began_s = 0, time.time()
            while sent < 4 or not has_data(asked):
                assert sent < 40, "Prometheus never saw the load"
                produce(at, load(sent * ROUNDS_AT_ONCE))
                sent += 1
                wait_until(finished, "all is rated")
                wait_until(scraped_again(asked), "it is scraped")
            seen_s = time.time()
            log = folder / "worker-0.log"
            yield Watched(server.address, worker, log, seen_s, seen_s - began_s)


@pytest.fixture(scope="module")
def scraped(watched: Watched) -> Prometheus:
    """The Prometheus to query, as of the time when it had seen the load."""
    return Prometheus(watched.prometheus, watched.seen_s)


def has_data(asked: Prometheus) -> bool:
    """Whether the slowest data is there: recorded ratios of rates, one of them once a minute."""
    rejected = "job:stream_rater_rounds_rejected:ratio_rate5m > 0"
    found = asked.now(f"{rejected} and on (job) job:stream_rater_budget_burn:ratio_rate30d")
    return bool(found) and bool(asked.now("rate(stream_rater_events_total[1h]) > 0"))


def scraped_again(asked: Prometheus) -> Callable[[], bool]:
    """Whether there was a scrape since now."""

    def last() -> float:
        found = asked.now("max(timestamp(stream_rater_ready))")
        return found[0].points[0][1] if found else 0.0

    before = last()
    return lambda: last() > before


def mistakes_of(scraped: Prometheus, panel: Panel) -> Iterator[str]:
    """Queries of a panel without series, without a label of its legend, or without numbers."""
    for query in panel.queries:
        found = scraped.now(query.expression)
        labels = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
        values = [series.points[0][1] for series in found]
        if all(map(math.isnan, values)) or any(map(math.isinf, values)):
            yield f"{panel.title}: {query.expression}: {values}"
        elif not all(labels <= series.labels.keys() for series in found):
            yield f"{panel.title}: {query.expression}: not all labels of {query.legend}"


def alert_rules() -> list[tuple[str, str]]:
    """(name, expression)."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [(r.get("alert", r.get("record")), r["expr"]) for g in groups for r in g["rules"]]


def compared(expression: str) -> Iterator[str]:
    """The values that an alert compares: its expression without comparisons and thresholds."""
    sides, depth, start, closed = [], 0, 0, 0
    for token in TOKEN.finditer(expression):
        if token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            depth -= 1
            closed = closed or (token.end() if depth == 0 else 0)
        elif depth == 0 and token[0][0] != '"':
            sides.append(expression[start : token.start()].strip())
            start = token.end()
    sides.append(expression[start:].strip())
    if len(sides) > 1:
        for side in sides:
            yield from compared(side)
    elif expression[0] == "(" and closed == len(expression):
        yield from compared(expression[1:-1].strip())
    elif labelled := LABELLED.fullmatch(expression):
        yield from compared(labelled[1].strip())
    elif SELECTOR.search(expression):
        absent = ABSENT.fullmatch(expression)
        yield absent[1] if absent else expression


COMPARED = [
    (name, side)
    for name, expression in alert_rules()
    if ":" not in name  # as the names of recorded series have it
    for side in compared(expression)
]


def test_every_alert_compares_something() -> None:
    """No alert is left out."""
    alerts = {name for name, _ in alert_rules() if name.startswith("StreamRater")}
    assert {alert for alert, _ in COMPARED} == alerts


def test_it_is_scraped(settings: SettingsFactory, worker_process: Start, tmp_path: Path) -> None:
    """A worker's metrics are there, and every rule is evaluated without an error."""
    tools.prometheus()
    target = worker_process(settings()).url.removeprefix("http://")
    with start_prometheus(tmp_path / "prometheus", workers=[target], every=EVERY) as server:
        asked = Prometheus(server.address)
        wait_until(lambda: bool(asked.now("stream_rater_ready == 1")), "it is scraped")
        wait_until(lambda: bool(asked.now("job_topic:stream_rater_lag_records:sum")), "a rule acts")
        wait_until(lambda: not any(r["health"] == "unknown" for r in rules_at(asked)), "all do")
        rules = rules_at(asked)
        assert [rule for rule in rules if rule["health"] != "ok"] == []
        assert len(rules) == len(alert_rules())
        assert asked.now(f'sum by (job) (stream_rater_owned{{instance="{target}"}}) == 8')


def rules_at(asked: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in asked.get("rules")["groups"] for rule in group["rules"]]


@pytest.mark.slow
def test_dashboard_rules_and_alerts_find_their_data(scraped: Prometheus) -> None:
    """Each query of a panel has series with numbers and all labels of its legend. Each metric of a
    rule has series, and what alerts compare has numbers."""
    mistakes = [each for panel in SHOWN for each in mistakes_of(scraped, panel)]
    for name, expression in alert_rules():
        selectors = SELECTOR.findall(expression)
        assert selectors, name
        for selector in selectors:
            if not scraped.now(f"count_over_time({selector}[5m])"):
                mistakes.append(f"{name}: {selector}")
    for alert, expression in COMPARED:
        found = scraped.now(expression)
        if not any(math.isfinite(series.points[0][1]) for series in found):
            mistakes.append(f"{alert}: {expression}")
    assert mistakes == []


@pytest.mark.slow
def test_rules_are_evaluated_and_none_fires(scraped: Prometheus) -> None:
    """Every rule is healthy, and a working worker causes no alert."""
    rules = rules_at(scraped)
    assert len(rules) == len(alert_rules())
    assert {rule["health"] for rule in rules} == {"ok"}, [r.get("lastError") for r in rules]
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == []
    recorded = [rule["name"] for rule in rules if rule["type"] == "recording"]
    assert [name for name in recorded if not scraped.now(name)] == []


@pytest.mark.slow
def test_latency_is_what_was_measured(watched: Watched, scraped: Prometheus) -> None:
    """The latency is between 0 and the time that the whole load took."""
    for role in ("estimator", "updater"):
        (count,) = scraped.now(f'stream_rater_latency_seconds_count{{role="{role}"}}')
        (total,) = scraped.now(f'stream_rater_latency_seconds_sum{{role="{role}"}}')
        assert count.points[0][1] >= 4
        assert 0.0 < total.points[0][1] / count.points[0][1] < watched.lasted_s


LOOKED_AT = [
    (f"{heading} {number}", block)
    for heading in ("First look", *sorted(ALERTS))
    for number, block in enumerate(runbook.blocks(heading))
]
SOMEBODY = ("--player ada-1", "--player p1")  # The runbook's player, and one of this test.


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tls")
    with secured_redis(folder / "redis", make_certificates(folder)) as server:
        yield server.url.removeprefix("rediss://")


@pytest.mark.slow
def test_the_runbooks_commands_show_something(watched: Watched, certificate: str, tls: str) -> None:
    """Each command block of the alerts' sections prints something, and no error."""
    at = watched.worker.settings
    variables = {
        "WORKER": watched.worker.url.removeprefix("http://"),
        "PROMETHEUS": f"http://{watched.prometheus}", "LOG": str(watched.log), "TLS": tls,
        "STREAM_RATER_KAFKA_SSL_CERTIFICATE": certificate,
    }  # fmt: skip
    environment = environment_of(at) | variables
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    mistakes = {}
    for name, block in LOOKED_AT:
        done = subprocess.run(
            ["bash", "-uc", block.replace(*SOMEBODY)],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=HANGS_S, check=False,
        )  # fmt: skip
        if done.returncode or complaints(done.stderr) or not done.stdout.strip():
            mistakes[name] = (done.returncode, done.stdout, done.stderr)
    assert mistakes == {}
