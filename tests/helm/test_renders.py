"""Renders of the chart for a matrix of values fit Kubernetes' schemas and our promises."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml

from stream_rater.config.settings import Settings
from stream_rater.runtime.service import STALE_S, STOP_TIMEOUT_S
from tests import tools
from tests.builders.cases import cases
from tests.helm import chart, kubernetes
from tests.waits import HANGS_S

ROLES = ("separate", "all")
CUSTOM = {
    "ServiceMonitor", "PodMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication",
    "HTTPRoute",
}  # fmt: skip
"""Kinds without a schema in Kubernetes. `make kubernetes` shows them to a server that has one."""

PORT = int(Settings().http.rpartition(":")[2])


def matrix() -> Iterator[tuple[str, str]]:
    """Each case in both shapes."""
    return ((case, f"role={role}") for case in chart.CASES for role in ROLES)


def unique() -> list[chart.Resource]:
    """All different resources of the matrix that are of Kubernetes' own kinds."""
    texts = {json.dumps(each) for case, role in matrix() for each in chart.resources(case, role)}
    found = [json.loads(text) for text in sorted(texts)]
    return [each for each in found if each["kind"] not in CUSTOM]


def test_lint_has_no_complaint() -> None:
    """`helm lint` prints no error and no warning."""
    for case in chart.CASES:
        done = chart.helm("lint", "--strict", ".", chart.values_of(case))
        assert done.returncode == 0, done.stdout


def test_kubernetes_knows_every_field() -> None:
    """The schemas of the three newest versions allow every field of every resource."""
    found = unique()
    assert {"StatefulSet", "NetworkPolicy", "PodDisruptionBudget", "Pod"} <= {
        each["kind"] for each in found
    }
    versions = kubernetes.newest(3)
    assert len(versions) == 3
    wrong = [kubernetes.mistake(each, version) for version in versions for each in found]
    assert [each for each in wrong if each is not None] == []


def test_the_schemas_refuse_a_misspelt_field() -> None:
    """The check above can fail."""
    wrong = chart.the("Service", "separate")
    wrong["spec"]["publishNotReadyAddress"] = True
    (newest,) = kubernetes.newest(1)
    assert "publishNotReadyAddress" in (kubernetes.mistake(wrong, newest) or "")


MANY = ("jobs/cronjobs.yaml", "extraobjects.yaml")
"""Templates that make what the values list."""


def test_a_template_makes_one_resource_at_most() -> None:
    """A file's name says what is in it. No two resources have the same name."""
    for case, role in matrix():
        found = re.findall(r"^# Source: (.*)$", chart.rendered(case, role), re.MULTILINE)
        names = [(r["kind"], r["metadata"]["name"]) for r in chart.resources(case, role)]
        assert len(found) == len(set(names)) == len(names)
        sources = [each for each in found if not each.endswith(MANY)]
        assert len(sources) == len(set(sources))


def test_every_pod_is_restricted() -> None:
    """Each fits the `restricted` Pod Security Standard, with a read-only root and no token."""
    specs = [each["spec"] for each in unique() if "spec" in each]
    specs = [each.get("jobTemplate", {"spec": each})["spec"] for each in specs]
    pods = [each.get("template", {"spec": each})["spec"] for each in specs]
    pods = [each for each in pods if "containers" in each]
    assert len(pods) > len(chart.CASES)
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"].get("runAsUser", 1) > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(pod)
        for volume in pod.get("volumes", []):
            assert set(volume) - {"name"} <= {"configMap", "projected", "emptyDir"}
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"] and container["resources"]["limits"]
            assert all("hostPort" not in port for port in container.get("ports", []))


def test_each_role_has_its_workers_and_its_budget() -> None:
    """Roles have StatefulSets and budgets of their own, or share one."""
    for role, components in {"separate": ["estimator", "updater"], "all": ["all"]}.items():
        pods = chart.worker_pods("separate", f"role={role}")
        assert sorted(pods) == components
        budgets = chart.of_kind("PodDisruptionBudget", "separate", f"role={role}")
        for component, budget in zip(components, budgets, strict=True):
            selector = budget["spec"]["selector"]["matchLabels"]
            assert selector["app.kubernetes.io/component"] == component
            assert selector.items() <= pods[component]["metadata"]["labels"].items()


def test_selectors_find_the_workers_and_nothing_else() -> None:
    """They never change with a release, and the pod of `helm test` is not among them."""
    service = chart.the("Service", "secured")["spec"]["selector"]
    policy = chart.the("NetworkPolicy", "secured")["spec"]["podSelector"]["matchLabels"]
    test_pod = chart.the("Pod", "secured")["metadata"]["labels"]
    for workers in chart.of_kind("StatefulSet", "secured"):
        labels = workers["spec"]["template"]["metadata"]["labels"].items()
        for selector in (service, policy, workers["spec"]["selector"]["matchLabels"]):
            assert selector.items() <= labels
            assert not selector.items() <= test_pod.items()
            assert not {"app.kubernetes.io/version", "helm.sh/chart"} & set(selector)
        assert workers["spec"]["serviceName"] == chart.the("Service", "secured")["metadata"]["name"]


def test_the_endpoints_admit_the_scrapers_and_helm_test() -> None:
    """Without scrapers, only `helm test` is admitted: a rule without peers would admit all."""
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    reported = {"secured": [{"namespaceSelector": monitoring}], "separate": []}
    for case, scrapers in reported.items():
        (rule,) = chart.the("NetworkPolicy", case)["spec"]["ingress"]
        assert rule["ports"] == [{"port": "http"}]
        *others, helm_test = rule["from"]
        assert others == scrapers
        assert set(helm_test) == {"podSelector"}
        labels = chart.the("Pod", case)["metadata"]["labels"].items()
        assert helm_test["podSelector"]["matchLabels"].items() <= labels


def test_the_endpoints_are_where_the_service_has_them() -> None:
    """Probes, scrapes and settings have the service's port and paths."""
    (container,) = chart.worker_pods("observed")["updater"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    paths = {
        each: container[f"{each}Probe"]["httpGet"] for each in ("startup", "liveness", "readiness")
    }
    assert {each["port"] for each in paths.values()} == {"http"}
    assert paths["startup"]["path"] == paths["liveness"]["path"] == "/healthz"
    assert paths["readiness"]["path"] == "/readyz"
    assert f'http = "0.0.0.0:{PORT}"' in chart.files("observed")["settings.toml"]
    assert chart.the("Service", "observed")["spec"]["ports"][0]["port"] == PORT
    (endpoint,) = chart.the("ServiceMonitor", "observed")["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")


def test_a_pod_has_the_time_that_a_worker_may_take() -> None:
    """It has time to stop before SIGKILL, and to report a hang before the probe restarts it."""
    pod = chart.worker_pods("separate")["updater"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > STOP_TIMEOUT_S
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    assert schema["properties"]["terminationGracePeriodSeconds"]["minimum"] > STOP_TIMEOUT_S
    probe = pod["containers"][0]["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= STALE_S


def test_egress_goes_to_the_ports_of_the_addresses() -> None:
    """Each port is there once. Ports in the values replace them."""

    def ports(case: str, *changes: str) -> list[int]:
        rules = chart.the("NetworkPolicy", case, *changes)["spec"]["egress"]
        return [each["port"] for each in rules[1]["ports"]]

    assert ports("separate") == [9092, 6379]
    assert ports("separate", "redis.url=rediss://redis") == [9092, 6379]
    assert ports("separate", "redis.url=redis://r:7000/3") == [9092, 7000]
    assert ports("separate", "kafka.bootstrapServers=a:1\\,b:2\\, c:1") == [1, 2, 6379]
    assert ports("separate", "networkPolicy.kafkaPorts={7,8}") == [7, 8, 6379]
    assert ports("sentinel") == [9093, 6379, 26379, 26380]
    assert ports("sentinel", "networkPolicy.redisPorts={7}") == [9093, 7]
    assert ports("separate", "tracing.endpoint=http://c:4318/a/9") == [9092, 6379, 4318]
    assert ports("separate", "tracing.endpoint=https://c") == [9092, 6379, 443]


@cases("name", [f"rater-stream-rater{each}" for each in ("", "-serve", "-jobs")])
def test_egress_goes_to_the_peers_of_the_values(name: str) -> None:
    """Each server's ports are open to its own peers only; without peers, to any address."""
    at = "networkPolicy.to"
    changes = [f"{at}.{each}[0].podSelector.matchLabels.app={each}" for each in ("dns", "redis")]
    changes += [f"{at}.kafka[0].ipBlock.cidr=10.0.0.0/8", "tracing.endpoint=http://c:4318"]
    policies = chart.of_kind("NetworkPolicy", "serving", *changes)
    (rules,) = (each["spec"]["egress"] for each in policies if each["metadata"]["name"] == name)
    found = [([each["port"] for each in rule["ports"]], rule.get("to")) for rule in rules]
    assert found == [
        ([53, 53], [{"podSelector": {"matchLabels": {"app": "dns"}}}]),
        ([9093], [{"ipBlock": {"cidr": "10.0.0.0/8"}}]),
        ([6380], [{"podSelector": {"matchLabels": {"app": "redis"}}}]),
        ([4318], None),
    ]


def test_pods_are_spread_by_role() -> None:
    """Pods of a role are spread over nodes and zones."""
    for component, pod in chart.worker_pods("secured").items():
        rules = pod["spec"]["topologySpreadConstraints"]
        assert [each["topologyKey"] for each in rules] == [
            "kubernetes.io/hostname", "topology.kubernetes.io/zone",
        ]  # fmt: skip
        for each in rules:
            selector = each["labelSelector"]["matchLabels"]
            assert selector["app.kubernetes.io/component"] == component
            assert each["whenUnsatisfiable"] == "DoNotSchedule"


def test_rules_and_dashboard_are_the_charts_files() -> None:
    """Files are rendered unchanged, also the Prometheus templates in them."""
    files = [chart.CHART / "files" / name for name in ("recording.yaml", "alerts.yaml")]
    groups = [group for each in files for group in yaml.safe_load(each.read_text())["groups"]]
    unknown = "serviceMonitor.enabled=false"
    assert chart.the("PrometheusRule", "observed", unknown)["spec"]["groups"] == groups
    any_job, job = r"job=~\".*stream-rater.*\"", r"job=\"stream-rater/games/rater-stream-rater\""
    assert any_job in json.dumps(groups)
    expected = json.loads(json.dumps(groups).replace(any_job, job))
    assert chart.the("PrometheusRule", "observed")["spec"]["groups"] == expected
    assert {"alert", "record"} <= {key for g in groups for rule in g["rules"] for key in rule}
    maps = [each["data"] for each in chart.of_kind("ConfigMap", "observed")]
    (dashboard,) = (each for each in maps if "stream-rater.json" in each)
    found = json.loads((chart.CHART / "files" / "dashboard.json").read_text())
    assert json.loads(dashboard["stream-rater.json"]) == found


def test_a_release_that_is_gone_is_missed(tmp_path: Path) -> None:
    """An alert fires for a missing release, although another one runs both roles."""
    rules = chart.the("PrometheusRule", "observed")["spec"]
    (tmp_path / "rules.yaml").write_text(json.dumps(rules))
    other = 'job="stream-rater/games/other"'
    series = [f"up{{{other}}}"]
    series += [f'stream_rater_owned{{{other}, role="{role}"}}' for role in ("estimator", "updater")]
    labels = 'alertname="StreamRaterRoleAbsent", alertstate="firing", severity="critical", '
    job = 'job="stream-rater/games/rater-stream-rater"'
    fires = [f'ALERTS{{{labels}{job}, role="{role}"}}' for role in ("estimator", "updater")]
    query = 'ALERTS{alertname="StreamRaterRoleAbsent", alertstate="firing"}'
    samples = [{"labels": each, "value": 1} for each in fires]
    test = {"rule_files": ["rules.yaml"], "tests": [{
        "interval": "1m", "input_series": [{"series": each, "values": "1x20"} for each in series],
        "promql_expr_test": [{"expr": query, "eval_time": "6m", "exp_samples": samples}],
    }]}  # fmt: skip
    (tmp_path / "test.yaml").write_text(json.dumps(test))
    done = subprocess.run(
        [tools.promtool(), "test", "rules", str(tmp_path / "test.yaml")],
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_know_the_job() -> None:
    """Rules match the beginning of a job's name. Each release has a job of its own."""
    jobs = set()
    for change in ("nameOverride=x", "fullnameOverride=ratings"):
        (endpoint,) = chart.the("ServiceMonitor", "observed", change)["spec"]["endpoints"]
        (relabeling,) = endpoint["relabelings"]
        assert relabeling["targetLabel"] == "job"
        jobs.add(relabeling["replacement"])
    assert jobs == {"stream-rater/games/rater-x", "stream-rater/games/ratings"}
    text = (chart.CHART / "files" / "alerts.yaml").read_text()
    of_serve, wanted = "stream-rater-serve.*", set(re.findall(r'job=~"(.*?)"', text))
    assert wanted == {".*stream-rater.*", of_serve}
    assert all(re.fullmatch(".*stream-rater.*", job) for job in jobs)
    assert set(re.findall(r'job!~"(.*?)"', text)) == {of_serve}
    assert not any(re.fullmatch(of_serve, job) for job in jobs)
