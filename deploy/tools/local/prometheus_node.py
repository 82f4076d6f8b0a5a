"""A Prometheus that scrapes workers on this machine, with the rules that production has."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from local.processes import LOOPBACK, Launch, Server, http_ok, start_on
from local.tools import ROOT, LocalServerError, find_prometheus

START_TIMEOUT_S: Final = 30.0
JOB: Final = "stream-rater"
API_JOB: Final = "stream-rater-serve"
"""The job of `stream-rater serve`. Alerts know both jobs by their names."""
WORKER: Final = f"{LOOPBACK}:9108"
"""The default address of the metrics of `stream-rater run`."""

SHARED: Final = ROOT / "helm" / "stream-rater" / "files"
"""The folder of the rules and the dashboard."""
RULES: Final = (SHARED / "recording.yaml", SHARED / "alerts.yaml")
DASHBOARD: Final = SHARED / "dashboard.json"


def start_prometheus(
    directory: Path,
    *,
    port: int | None = None,
    workers: Sequence[str] = (WORKER,),
    apis: Sequence[str] = (),
    every: str = "5s",
    outlive: bool = False,
) -> Server:
    """Start Prometheus with its data in `directory` and return once it is ready.

    It scrapes these workers and processes of the API, and evaluates the rules, at the interval
    `every`. With `outlive` it runs on after this process.
    """
    prometheus = find_prometheus()
    if prometheus is None:
        raise LocalServerError("no prometheus on PATH: run `make setup`")

    def start(on_port: int) -> Server:
        directory.mkdir(parents=True, exist_ok=True)
        configuration = directory / "prometheus.yml"
        configuration.write_text(render(workers, apis, every), encoding="utf-8")
        return Server(
            Launch(
                name="prometheus",
                command=(
                    str(prometheus),
                    f"--config.file={configuration.resolve()}",
                    f"--storage.tsdb.path={(directory / 'data').resolve()}",
                    "--storage.tsdb.retention.time=7d",
                    f"--web.listen-address={LOOPBACK}:{on_port}",
                ),
                directory=directory,
                port=on_port,
                answers=answers,
                start_timeout_s=START_TIMEOUT_S,
                outlive=outlive,
            )
        ).start()

    return start_on(port, start)


def render(workers: Sequence[str], apis: Sequence[str], every: str) -> str:
    """The text of prometheus.yml: JSON, which is YAML."""
    jobs = {JOB: workers, API_JOB: apis}
    return json.dumps(
        {
            "global": {"scrape_interval": every, "evaluation_interval": every},
            "rule_files": [str(path) for path in RULES],
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": [*targets]}]}
                for name, targets in jobs.items()
                if targets
            ],
        },
        indent=2,
    )


def answers(port: int) -> bool:
    """Whether it is ready for queries."""
    return http_ok(f"http://{LOOPBACK}:{port}/-/ready")
