"""README, golden files, schema and defaults agree with the templates of the chart."""

import base64
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from local.go_tools import TOOLS, GoTool, is_of
from local.tools import ROOT
from stream_rater.config.settings import Settings
from stream_rater.runtime.metrics import EVENTS_S
from tests.helm import strimzi
from tests.helm.__main__ import GOLDEN_CASES
from tests.helm.chart import CHART, GOLDEN, documentation, helm, of_kind, rendered, require_helm

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())

OTHER_THAN_THE_SERVICES = {"replication": 3, "session_timeout_ms": 30_000}
"""In a cluster, topics outlive a broker, and a pod takes longer to be back than a process."""


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_the_tools_are_those_of_the_pins(tool: GoTool) -> None:
    """Go recorded in each tool the version that is pinned."""
    require_helm()
    assert is_of(tool.path, tool.origin)


def test_the_readme_is_made_of_the_comments() -> None:
    """The README is current: `make chart` was run after the last change."""
    assert (CHART / "README.md").read_text() == documentation(), "make chart"


def test_the_example_for_strimzi_is_what_the_service_creates() -> None:
    """Its topics, and the rights of the page. `make chart` was run after the last change."""
    assert strimzi.FILE.read_text() == strimzi.text(), "make chart"


def test_the_chart_describes_itself() -> None:
    """Its picture is the page's, and its version and licence are the project's."""
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    picture = (ROOT / "stream_rater" / "serve" / "page" / "icon.svg").read_bytes()
    kind, _, data = described["icon"].partition(",")
    assert (kind, base64.b64decode(data)) == ("data:image/svg+xml;base64", picture)
    assert described["version"] == described["appVersion"] == project["version"]
    assert described["annotations"]["artifacthub.io/license"] == project["license"]


def test_every_value_is_documented() -> None:
    """No row of the README's table is without a description, and each value has one."""
    rows = re.findall(r"^\| `([\w.]+)` \| .*? \| (.*) \|$", documentation(), re.MULTILINE)
    assert [name for name, documented in rows if not documented.strip()] == []
    documented = {name for name, _ in rows}
    assert [path for path in leaves(VALUES) if not documented & set(prefixes(path))] == []


def leaves(values: dict[str, Any], above: str = "") -> Iterator[str]:
    """Dotted names of all values that are no tables, or empty ones."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def prefixes(path: str) -> Iterator[str]:
    """A dotted name, and those of the tables it is in: one comment describes a whole table."""
    parts = path.split(".")
    return (".".join(parts[:i]) for i in range(1, len(parts) + 1))


def test_the_readmes_values_are_taken(tmp_path: Path) -> None:
    """Helm accepts the values of the README's example."""
    (example,) = re.findall(r"```yaml\n(.*?)```", documentation(), re.DOTALL)
    (tmp_path / "values.yaml").write_text(example)
    done = helm("template", "rater", ".", f"--values={tmp_path}/values.yaml")
    assert done.returncode == 0, done.stderr


def test_alerts_lead_to_the_runbook_that_is_named() -> None:
    """The URL of each alert leads to its own section of the runbook."""
    url = "https://docs.example/ops/runbook/"
    (made,) = of_kind("PrometheusRule", "observed", f"prometheusRule.runbookUrl={url}")
    rules = [rule for group in made["spec"]["groups"] for rule in group["rules"]]
    alerts = [rule for rule in rules if "alert" in rule]
    assert alerts
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"{url}#{rule['alert'].lower()}"
    maps = json.dumps(of_kind("ConfigMap", "observed", f"prometheusRule.runbookUrl={url}"))
    assert f"{url}#streamraterslow" in maps and VALUES["prometheusRule"]["runbookUrl"] not in maps


def test_the_objective_is_a_value() -> None:
    """It stands in one rule. Its seconds are a bucket's."""
    changes = "prometheusRule.objective.seconds=2", "prometheusRule.objective.percent=95"
    (made,) = of_kind("PrometheusRule", "observed", *changes)
    rules = [rule["expr"] for group in made["spec"]["groups"] for rule in group["rules"]]
    (rule,) = [each for each in rules if "event_latency_seconds_bucket" in each]
    assert 'le="2.0"' in rule and "(1 - 95 / 100)" in rule
    objective = SCHEMA["properties"]["prometheusRule"]["properties"]["objective"]["properties"]
    assert set(objective["seconds"]["enum"]) <= set(EVENTS_S)


def test_renders_are_as_they_were_read() -> None:
    """Renders equal the golden files, so that reviews show changes. `make chart` writes these."""
    for case in GOLDEN_CASES:
        assert (GOLDEN / f"{case}.yaml").read_text() == rendered(case), "meant so? make chart"


def test_the_schema_knows_the_values_and_no_others() -> None:
    """In each table, schema and values have the same names, and others are refused."""
    assert sorted(differences(SCHEMA, VALUES)) == []


def differences(schema: dict[str, Any], values: dict[str, Any], at: str = "") -> Iterator[str]:
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    if "properties" not in schema:
        return  # free: labels, Kubernetes' own structures
    if schema.get("additionalProperties") is not False:
        yield f"{at}: takes anything"
    yield from (f"{at}.{name}" for name in (set(schema["properties"]) - {"global"}) ^ set(values))
    for name, value in values.items():
        if isinstance(value, dict) and name in schema["properties"]:
            yield from differences(schema["properties"][name], value, f"{at}.{name}")


def test_settings_have_the_services_defaults() -> None:
    """Settings default to the service's defaults, with exceptions for a cluster."""
    defaults = {each.name: each.default for each in msgspec.structs.fields(Settings)}
    for name, value in VALUES["settings"].items():
        setting = re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", name)
        assert value == OTHER_THAN_THE_SERVICES.get(setting, defaults[setting]), name


def test_the_image_is_what_the_chart_takes_it_for() -> None:
    """The image has the user, the port and the PATH that the chart expects."""
    dockerfile = ROOT / "deploy" / "Dockerfile"
    if not dockerfile.exists():
        pytest.skip("no Dockerfile in this tree")
    text = dockerfile.read_text()
    user = VALUES["runAsUser"]
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE)[-1] == f"{user}:{user}"
    assert re.findall(r"^EXPOSE (.*)$", text, re.MULTILINE) == ["9108"]
    assert 'ENTRYPOINT ["stream-rater"]' in text


def notes(*options: str) -> str:
    """What Helm prints after an install."""
    done = helm("install", "rater", ".", "--dry-run=client", "--namespace=games", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:")[2]


def test_the_notes_are_shown() -> None:
    """Helm prints the notes, which name commands that exist."""
    shown = notes()
    assert "helm -n games test rater" in shown
    assert "kubectl -n games exec rater-stream-rater-estimator-0 -- stream-rater watch" in shown
    assert "kubectl -n games get statefulset rater-stream-rater-estimator -o json >" in shown
    assert "python3 deploy/operator_pod.py verify --wait 60 <" in shown, "as the page says"
    assert "WARNING: Redis is used without TLS" in shown


KEPT_OUT = "serviceMonitor.enabled=true"
WARNED = {
    KEPT_OUT: "WARNING: Prometheus cannot reach the workers",
    r"kafka.options.enable\.ssl\.certificate\.verification=false": "is taken for Kafka",
    r"kafka.options.ssl\.endpoint\.identification\.algorithm=none": "is taken for Kafka",
    "prometheusRule.enabled=true": "WARNING: prometheusRule.runbookUrl is an example",
}


def test_the_notes_warn() -> None:
    """They warn of readable secrets, and of a Prometheus that the NetworkPolicy keeps out."""
    usual = notes()
    for change, warning in WARNED.items():
        assert warning in notes(f"--set={change}")
        assert warning not in usual
    ours = "prometheusRule.enabled=true,prometheusRule.runbookUrl=https://wiki.test/runbook/"
    assert "runbookUrl" not in notes(f"--set={ours}")
    assert WARNED[KEPT_OUT] not in notes(f"--set={KEPT_OUT},networkPolicy.enabled=false")
