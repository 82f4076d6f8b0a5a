"""Parts of the chart that are off by default: `serve`, whose pods are no workers; CronJobs, one of
which starts seasons; and scaling by KEDA, by the lag of consumer groups."""

import json
import re
from typing import Any

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.cli import app
from stream_rater.config.files import read_settings
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from tests import pages
from tests.builders.cases import cases
from tests.helm.chart import CHART, Resource, of_kind, refusal, the, worker_pods

CASE, NAME = "serving", "rater-stream-rater"


def program(pod: Resource) -> dict[str, Any]:
    """The container of a pod."""
    (found,) = pod["spec"]["containers"]
    return dict(found)


def variables(pod: Resource) -> dict[str, str]:
    """The environment variables of a pod that have a value."""
    reported = program(pod)["env"]
    return {each["name"]: each["value"] for each in reported if "value" in each}


def pod_of(*changes: str) -> Resource:
    found: Resource = the("Deployment", CASE, *changes)["spec"]["template"]
    return found


def of_serve(kind: str) -> Resource:
    (found,) = (e for e in of_kind(kind, CASE) if e["metadata"]["name"].endswith("-serve"))
    return found


def secrets(pod: Resource) -> dict[str, str]:
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "access"]
    return {
        item["path"]: each["secret"]["name"]
        for each in volume["projected"]["sources"]
        for item in each["secret"]["items"]
    }


def test_nothing_takes_it_for_a_worker() -> None:
    """Selectors of workers select no pod of `serve`, and the other way round."""
    workers = [pod["metadata"]["labels"] for pod in worker_pods(CASE).values()]
    own = pod_of()["metadata"]["labels"]
    services = {each["metadata"]["name"]: each for each in of_kind("Service", CASE)}
    selectors: dict[bool, list[Any]] = {True: [], False: []}
    for each in (*of_kind("NetworkPolicy", CASE), *of_kind("PodDisruptionBudget", CASE)):
        spec = each["spec"]
        chosen = spec.get("podSelector", spec.get("selector"))["matchLabels"]
        selectors[each["metadata"]["name"].endswith("-serve")].append(chosen)
    for name, each in services.items():
        selectors[name.endswith("-serve")].append(each["spec"]["selector"])
    for serve, chosen in selectors.items():
        assert len(chosen) >= 3
        for selector in chosen:
            assert (selector.items() <= own.items()) == serve
            if serve:
                assert not any(selector.items() <= each.items() for each in workers)
    for monitor in of_kind("ServiceMonitor", CASE):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        found = [n for n, each in services.items() if wanted <= each["metadata"]["labels"].items()]
        assert found == [monitor["metadata"]["name"]]


def test_it_may_share_the_workers_users() -> None:
    """Without users of its own, `serve` has the workers'. Without a token, it asks for none."""
    empty = [
        f"serve.{each}=" for each in (
            "kafka.username", "kafka.existingSecret", "redis.username", "redis.existingSecret",
            "token.existingSecret", "writeToken.existingSecret",
        )
    ]  # fmt: skip
    pod = pod_of(*empty)
    assert secrets(pod) == {"kafka-password": "kafka-user", "redis-password": "redis-user"}
    assert variables(pod)["STREAM_RATER_KAFKA_SASL_USERNAME"] == "rater"
    unset = ("REDIS_USERNAME", "SERVE_TOKEN_FILE", "SERVE_WRITE_TOKEN_FILE")
    assert {PREFIX + each for each in unset}.isdisjoint(variables(pod))


def test_its_variables_are_settings() -> None:
    """Values of the chart become variables that `serve` accepts as settings."""
    reported = {n: v for n, v in variables(pod_of()).items() if not n.endswith("_FILE")}
    found = read_settings(None, reported)
    assert (found.serve, found.serve_rate, found.serve_history) == ("0.0.0.0:9108", 2500.0, 50)
    assert (found.serve_probes, found.serve_connections) == ("0.0.0.0:9110", 1000)
    assert found.serve_cors == "https://play.example,https://admin.play.example"
    assert program(pod_of())["args"][0] == "serve"


def test_it_is_reached_where_it_listens() -> None:
    """Service, probes and Ingress have the ports on which `serve` listens."""
    found = program(pod_of())
    port, probes = found["ports"]
    reported = variables(pod_of())
    assert reported["STREAM_RATER_SERVE"].endswith(f":{port['containerPort']}")
    assert reported["STREAM_RATER_SERVE_PROBES"].endswith(f":{probes['containerPort']}")
    service = of_serve("Service")
    assert [each["targetPort"] for each in service["spec"]["ports"]] == ["http", "probes"]
    assert (port["name"], probes["name"]) == ("http", "probes")
    for kind, path in (("startup", "/healthz"), ("liveness", "/healthz"), ("readiness", "/readyz")):
        assert found[f"{kind}Probe"]["httpGet"] == {"path": path, "port": "probes"}
    assert of_serve("ServiceMonitor")["spec"]["endpoints"][0]["port"] == "probes"
    podwise = [each["spec"]["podMetricsEndpoints"][0] for each in of_kind("PodMonitor", JOBS)]
    assert [each["port"] for each in podwise] == ["http", "probes"]
    (rule,) = the("Ingress", CASE)["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert rule["host"] == "ratings.play.example"
    assert backend == {"name": service["metadata"]["name"], "port": {"name": "http"}}
    route = the("HTTPRoute", "cloud")["spec"]
    assert route["hostnames"] == [rule["host"]]
    (port,) = (p["port"] for p in service["spec"]["ports"] if p["name"] == backend["port"]["name"])
    assert route["rules"][0]["backendRefs"] == [{"name": backend["name"], "port": port}]
    *_, seconds, api = the("Pod", CASE)["spec"]["containers"][0]["args"]
    assert (seconds, api) == ("120", f"{service['metadata']['name']}:80")


def test_who_may_ask() -> None:
    """Clients and `helm test` may ask; Prometheus may ask for metrics only; nobody else may."""
    rule, metrics = of_serve("NetworkPolicy")["spec"]["ingress"]
    *others, test = rule["from"]
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    assert rule["ports"] == [{"port": "http"}] and metrics["ports"] == [{"port": "probes"}]
    assert others == [{"podSelector": {"matchLabels": {"app": "matchmaking"}}}]
    assert metrics["from"] == [{"namespaceSelector": monitoring}]
    labels = the("Pod", CASE)["metadata"]["labels"].items()
    assert test["podSelector"]["matchLabels"].items() <= labels


def test_it_is_scaled_by_processor_time_or_not_at_all() -> None:
    """With an autoscaler there are no replicas, so that an upgrade does not reset its number."""
    deployment = the("Deployment", CASE)
    scaler = the("HorizontalPodAutoscaler", CASE)["spec"]
    assert "replicas" not in deployment["spec"]
    assert scaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 8)
    fixed = "serve.autoscaling.enabled=false"
    assert the("Deployment", CASE, fixed)["spec"]["replicas"] == 3
    assert not of_kind("HorizontalPodAutoscaler", CASE, fixed)


def test_wrong_values_are_refused() -> None:
    """Helm refuses a wrong value and names it."""
    for change in (
        "serve.ingress.enabled=true", "serve.replicas=0", "serve.rate=-1", "serve.history=1001",
        "serve.kafka.username=reader", "serve.token.key=", "serve.autoscaling.cpuPercent=101",
        "serve.port=80", "serve.connections=-1",
    ):  # fmt: skip
        assert change.split("=", maxsplit=1)[0].split(".")[1] in refusal(f"--set={change}")


# --- jobs -----------------------------------------------------------------------------------------

JOBS = "strimzi"
"""The case with all of them."""
LIMITS_S = {"backup": 3600, "checkpoint": 21600, "verify": 21600}
LAST = ["--settings", "/etc/stream-rater/config/settings.toml"]


def jobs() -> dict[str, Resource]:
    """Each CronJob's spec, by its name behind the release's."""
    found = of_kind("CronJob", JOBS)
    return {each["metadata"]["name"].removeprefix(f"{NAME}-"): each["spec"] for each in found}


def pod_of_job(name: str) -> Resource:
    return dict(jobs()[name]["jobTemplate"]["spec"]["template"])


def test_jobs_run_alone_and_end_and_failures_stay() -> None:
    """None runs beside itself. A Job that fails is kept with its pods, and an alert names it."""
    assert [*jobs()] == ["backup", "checkpoint", "seasons", "verify", "verify-all"]
    assert of_kind("CronJob", "separate") == []
    for name, spec in jobs().items():
        assert (spec["concurrencyPolicy"], spec["timeZone"]) == ("Forbid", "Etc/UTC")
        assert spec["failedJobsHistoryLimit"] == 3
        job = spec["jobTemplate"]["spec"]
        assert job["template"]["spec"]["restartPolicy"] == "Never" or name == "seasons"
        assert job.get("activeDeadlineSeconds") == LIMITS_S.get(name)
    (group,) = the("PrometheusRule", JOBS)["spec"]["groups"][-1:]
    (rule,) = group["rules"]
    (pattern,) = re.findall('job_name=~"(.*?)"', rule["expr"])
    assert all(re.fullmatch(pattern, f"{NAME}-{name}-29384950") for name in jobs())
    assert f"### {rule['alert']}" in pages.text("operations/runbook.md")


def test_each_command_is_one() -> None:
    """Commands accept their arguments. A backup runs the chart's program."""
    for name in ("verify", "checkpoint", "verify-all"):
        *words, option, file = program(pod_of_job(name))["args"]
        assert [option, file] == LAST
        app.main.commands[words[0]].make_context(words[0], words[1:])
    ours = (CHART / "files" / "snapshot.py").read_text()
    backup = program(pod_of_job("backup"))
    assert (backup["command"], backup["args"]) == (["python", "-c"], [ours, LAST[1]])


def test_it_starts_the_season_and_then_keeps_the_standings() -> None:
    """All seasons start before any standings are kept. Both commands accept their arguments."""
    made = the("CronJob", CASE, "seasons.ladders={ranked-eu,ranked-na}")
    pod = made["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    starts = [each["args"] for each in pod["initContainers"]]
    keeps = [each["args"] for each in pod["containers"]]
    assert starts == [
        ["correct", "season", ladder, "%Y%m", "--keep", "0.8", "--sigma", "120", *LAST]
        for ladder in ("ranked-eu", "ranked-na")
    ]
    assert keeps == [
        ["season-standings", ladder, "--wait", "3600", *LAST]
        for ladder in ("ranked-eu", "ranked-na")
    ]
    for words in (*starts, *keeps):
        command: Any = app.main
        while hasattr(command, "commands"):
            command, words = command.commands[words[0]], words[1:]
        options = {name for each in command.params for name in each.opts}
        assert {each for each in words if each.startswith("--")} <= options


@cases("name", ["backup", "checkpoint", "seasons", "verify", "verify-all"])
def test_pods_of_jobs_are_no_workers(name: str) -> None:
    """No selector of workers finds them, and one NetworkPolicy is for all of them."""
    pod, labels = pod_of_job(name)["spec"], pod_of_job(name)["metadata"]["labels"]
    for each in (*pod.get("initContainers", ()), *pod["containers"]):
        mounts = {mount["name"] for mount in each["volumeMounts"]}
        assert mounts <= {volume["name"] for volume in pod["volumes"]}
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind("NetworkPolicy", JOBS)}
    own = policies.pop(f"{NAME}-jobs")
    assert own["podSelector"]["matchLabels"].items() <= labels.items()
    assert own["egress"] == policies[NAME]["egress"]
    assert "ingress" not in own
    others = [each["podSelector"]["matchLabels"] for each in policies.values()]
    others += [each["spec"]["selector"] for each in of_kind("Service", JOBS)]
    others += [e["spec"]["selector"]["matchLabels"] for e in of_kind("PodDisruptionBudget", JOBS)]
    others += [each["spec"]["selector"]["matchLabels"] for each in of_kind("PodMonitor", JOBS)]
    assert not any(each.items() <= labels.items() for each in others)
    for worker in worker_pods(JOBS).values():
        assert not own["podSelector"]["matchLabels"].items() <= worker["metadata"]["labels"].items()


def test_what_could_not_start_a_season_is_refused() -> None:
    """Helm refuses them, and names the values."""
    for change in (
        {"enabled": True, "ladders": ["-x"]}, {"number": "autumn"},
        {"keep": 1.5}, {"sigma": -1}, {"schedule": ""},
    ):  # fmt: skip
        assert "seasons" in refusal(f"--set-json=seasons={json.dumps(change)}")


# --- scaling by KEDA ------------------------------------------------------------------------------


def triggers(*changes: str) -> list[list[Resource]]:
    return [each["spec"]["triggers"] for each in of_kind("ScaledObject", "secured", *changes)]


def test_each_role_is_scaled_by_its_own_lag() -> None:
    """Each trigger has the group and topic of its role. Pods with both roles have both triggers."""
    topics = Topics.of(Settings(topic_prefix="ranked."))
    expected = [(f"ranked.{ESTIMATORS}", topics.rounds), (f"ranked.{UPDATERS}", topics.parts)]
    (both,) = triggers("role=all")
    for found in ([each for (each,) in triggers()], both):
        known = [each["metadata"] for each in found]
        assert [(each["consumerGroup"], each["topic"]) for each in known] == expected


def test_no_more_pods_than_shares() -> None:
    """Limits are partitions (16) and shards (32), or the values' replicas if these are more."""
    limits = [
        (each["spec"]["minReplicaCount"], each["spec"]["maxReplicaCount"])
        for each in of_kind("ScaledObject", "secured", "updater.replicas=40")
    ]
    assert limits == [(2, 16), (40, 40)]


def test_markers_start_no_pod() -> None:
    """Markers of transactions at the ends of partitions are a lag that never goes away."""
    for each in of_kind("ScaledObject", "secured"):
        (trigger,) = each["spec"]["triggers"]
        assert int(trigger["metadata"]["lagThreshold"]) >= each["spec"]["maxReplicaCount"]
        assert trigger["metadata"]["excludePersistentLag"] == "true"


@cases(
    ("mechanism", "called"),
    [("PLAIN", "plaintext"), ("SCRAM-SHA-256", "scram_sha256"), ("SCRAM-SHA-512", "scram_sha512")],
)
def test_keda_shows_the_workers_credentials(mechanism: str, called: str) -> None:
    """KEDA takes the password from the Secret, and the user name from a variable of the worker."""
    change = f"kafka.sasl.mechanism={mechanism}"
    authentication = the("TriggerAuthentication", "secured", change)
    for (trigger,) in triggers(change):
        assert trigger["metadata"]["sasl"] == called
        assert trigger["metadata"]["tls"] == "enable"
        assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    given = {each["parameter"]: each for each in authentication["spec"]["secretTargetRef"]}
    assert set(given) == {"password", "ca", "cert", "key"}
    assert given["password"]["name"] == "kafka-user"
    (username,) = authentication["spec"]["env"]
    for pod in worker_pods("secured").values():
        (container,) = pod["spec"]["containers"]
        assert container["name"] == username["containerName"]
        assert username["name"] in {each["name"] for each in container["env"]}


def test_without_credentials_there_is_no_authentication() -> None:
    """No TriggerAuthentication is rendered, not even for TLS with the system's authorities."""
    assert of_kind("TriggerAuthentication", "observed") == []
    (trigger,) = of_kind("ScaledObject", "observed", "role=separate")[0]["spec"]["triggers"]
    assert "authenticationRef" not in trigger
    assert trigger["metadata"]["tls"] == "enable"
