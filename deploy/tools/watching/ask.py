"""Panels of the dashboard as queries, and a Prometheus to ask."""

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from local.prometheus_node import DASHBOARD

TIMEOUT_S = 60.0


class Query(NamedTuple):
    """One line, or family of lines, of a panel."""

    expression: str
    legend: str
    """A legend, with `{{label}}` for a label's value."""


@dataclass(frozen=True)
class Panel:
    """What one panel shows."""

    title: str
    unit: str
    row: str
    queries: tuple[Query, ...]
    link: str  # The address of its section in the runbook.
    colours: tuple[tuple[float, str], ...]
    """Of a single number: the colours, each with the value from which on it has it; else none."""


class Series(NamedTuple):
    """One series of an answer."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]
    """(Unix seconds, value)."""


def panels(rate_interval: str, job: str = ".*") -> Iterator[Panel]:
    """The dashboard's panels, in order, with Grafana's variables filled in."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    row = ""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
            continue
        queries = tuple(
            Query(
                each["expr"].replace("$__rate_interval", rate_interval).replace("$job", job),
                each["legendFormat"],
            )
            for each in panel["targets"]
        )
        defaults = panel["fieldConfig"]["defaults"]
        steps = defaults["thresholds"]["steps"] if panel["type"] == "stat" else ()
        colours = tuple(
            (-math.inf if s["value"] is None else s["value"], s["color"]) for s in steps
        )
        link = panel["links"][0]["url"]
        yield Panel(panel["title"], defaults["unit"], row, queries, link, colours)


class Refused(Exception):
    """Prometheus refused a query; the message has its reason."""


class Prometheus:
    """A server at an address (`host:port`)."""

    def __init__(self, address: str, at_s: float | None = None) -> None:
        """`at_s`: the time (Unix seconds) that `now` asks about, whenever it is asked."""
        self._url = f"http://{address}/api/v1/"
        self._at = {} if at_s is None else {"time": f"{at_s:.3f}"}

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer. Raises Refused with the reason if there is none."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self._url}{path}?{query}", timeout=TIMEOUT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise Refused(f"{parameters}: {json.load(error).get('error')}") from None

    def now(self, expression: str) -> list[Series]:
        """The present values of an expression."""
        found = self.get("query", query=expression, **self._at)["result"]
        return [Series(each["metric"], [_point(each["value"])]) for each in found]

    def between(self, expression: str, start_s: float, end_s: float, step_s: float) -> list[Series]:
        """The values of an expression from one time to another (Unix seconds)."""
        found = self.get(
            "query_range", query=expression, start=f"{start_s:.3f}", end=f"{end_s:.3f}",
            step=f"{step_s:g}",
        )["result"]  # fmt: skip
        return [Series(each["metric"], [_point(p) for p in each["values"]]) for each in found]


def _point(pair: tuple[float, str]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
