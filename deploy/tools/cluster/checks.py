"""The checks of a release. Each makes a row of the table."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import redis

from cluster.kubectl import NAMESPACE, RELEASE, Kube, is_ready
from cluster.node import NODE
from cluster.probes import KAFKA, Probes
from containers.load import Load
from containers.report import Failed, Report, wait_for
from local.tools import ROOT

CHART: Final = "helm/stream-rater"
VALUES: Final = "--values=deploy/tools/cluster/values.yaml"
LADDERS: Final = ROOT / "deploy" / "examples" / "ladders.toml"
NAME: Final = f"{RELEASE}-stream-rater"
ROLES: Final = ("estimator", "updater")
ROLLED_S: Final = 300.0
BEFORE_S, AFTER_S, SEASON_S = 8.0, 6.0, 20.0
"""Seconds of load before and after a change, and seconds of load without any change."""
OPERATOR: Final = "stream-rater-operator"
CHANGE: Final = """
[[ladders.ranked-eu.changes]]
from_offset = {offset}
rating = {{ system = "two-moment", beta = 310 }}
"""
PAUSED: Final = "autoscaling.keda.sh/paused-replicas"
LAG, BACKLOG, FLOOD_PER_S = 300, 8000, 500.0
"""The lag for each worker, the rounds that wait until one is started, and their rate."""
AHEAD: Final = 150
"""The records of a ladder's partition until changed parameters hold."""


class Checks:
    """The release under test."""

    def __init__(self, report: Report, kube: Kube, folder: Path) -> None:
        self._report = report
        self._kube = kube
        self._folder = folder
        self._ladders = LADDERS
        self._probes = Probes(kube)
        self._sets: dict[str, str] = {}

    def all(self) -> None:
        """Run all checks in this order: each needs the state that earlier ones have left."""
        check = self._report.check
        check("Pod Security admission", self._probes.privileged_refused)
        check("the chart's examples", self._examples)
        if not (check("helm install", self._install) and check("helm test", self._test)):
            self._report.say(self._state())
            return
        check("DNS and Services", self._probes.names)
        check("NetworkPolicy", self._probes.policy)
        check("ServiceMonitor, PrometheusRule", self._monitors)
        check("season", lambda: self._under_load(season))
        check("verify", self._verify)
        check("jobs", self._jobs)
        check("a job that fails", self._failing_job)
        check("rolling upgrade under load", lambda: self._under_load(self._upgrade))
        check("a pod killed under load", lambda: self._under_load(self._kill))
        check("ladders changed under load", lambda: self._under_load(self._change_ladders))
        check("updaters 1 to 3 under load", lambda: self._under_load(self._scale))
        check("scaled by lag", self._scaled_by_lag)
        check("node drained under load", lambda: self._under_load(self._drain))
        check("a wrong value", self._refused)
        check("helm test, again", self._test)
        check("verify, again", self._verify)
        check("helm uninstall", self._uninstall)

    def _helm(self, verb: str, **changes: str) -> str:
        """Install or upgrade as the documents say, each time with all values."""
        self._sets |= {name.replace("__", "."): value for name, value in changes.items()}
        sets = [f"--set={name}={value}" for name, value in self._sets.items()]
        given = (f"--set-file=ladders={self._ladders}", VALUES, *sets)
        return self._kube.helmed(verb, RELEASE, CHART, *given)

    def _install(self) -> str:
        self._helm("install")
        began_s = time.monotonic()
        self._rolled(*ROLES)
        self._kube.run("rollout", "status", f"deployment/{NAME}-serve", "--timeout=180s")
        pods = [pod for role in (*ROLES, "serve") for pod in self._kube.pods(role)]
        return f"{len(pods)} pods ready after {time.monotonic() - began_s:.0f} s"

    def _rolled(self, *roles: str) -> None:
        for role in roles:
            what = f"statefulset/{NAME}-{role}"
            self._kube.run("rollout", "status", what, "--timeout=240s")

    def _test(self) -> str:
        output = self._kube.helmed("test", RELEASE, "--timeout=180s")
        if "Succeeded" not in output:
            raise Failed(output[-300:])
        return "every worker ready, every partition and shard owned, the API answers"

    def _monitors(self) -> str:
        found = self._kube.get("servicemonitors,prometheusrules")["items"]
        kinds = sorted(each["kind"] for each in found)
        if not {"ServiceMonitor", "PrometheusRule"} <= set(kinds):
            raise Failed(f"there are {kinds}")
        return f"accepted: {', '.join(kinds)}"

    def _under_load(self, act: Callable[[], str]) -> str:
        """Call `act` while rounds arrive. Returns what it saw, and what came of the rounds."""
        with Load(KAFKA, self._folder) as load:
            time.sleep(BEFORE_S)
            try:
                seen = act()
                time.sleep(AFTER_S)
            except Failed as error:
                raise Failed(f"{error} [{self._state()}]") from None
            output = load.finish()
        return f"{seen}; {output}" if seen else output

    def _verify(self) -> str:
        """Run `verify` as docs/operations/kubernetes.md says."""
        kube = self._kube
        workers = kube.run("get", "statefulset", f"{NAME}-updater", "--output=json")
        command = [sys.executable, "deploy/operator_pod.py", "verify", "--wait", "60"]
        made = subprocess.run(
            command, cwd=ROOT, input=workers, capture_output=True, text=True, check=True
        )
        kube.run("create", "--filename=-", given=made.stdout)
        try:
            wait_for(lambda: kube.ended(OPERATOR), "verify ends", ROLLED_S)
            output = kube.run("logs", OPERATOR).strip()
            if kube.get("pod", OPERATOR)["status"]["phase"] != "Succeeded":
                raise Failed(output[-400:])
            return output.splitlines()[-1]
        finally:
            kube.run("delete", "pod", OPERATOR, "--wait=true")

    def _examples(self) -> str:
        """Show what `ci` values of the chart make to the API server, which has a schema of every
        kind, and stores nothing."""
        cases = sorted((ROOT / CHART / "ci").glob("*.yaml"))
        kinds: set[str] = set()
        for case in cases:
            made = self._kube.helmed("template", "case", CHART, f"--values={case}")
            shown = ("create", "--dry-run=server", "--validate=strict", "--filename=-")
            names = self._kube.run(*shown, "--output=name", given=made).split()
            kinds |= {each.partition("/")[0].partition(".")[0] for each in names}
        return f"{len(cases)} renders accepted: {', '.join(sorted(kinds))}"

    def _jobs(self) -> str:
        """Run each CronJob once, by the command of docs/operations/kubernetes.md."""
        cronjobs = self._kube.get("cronjobs")["items"]
        names = [each["metadata"]["name"].removeprefix(f"{NAME}-") for each in cronjobs]
        ended = {name: self._run_job(name) for name in names}
        if failed := {name: log for name, (state, log) in ended.items() if state != "Complete"}:
            raise Failed(f"{failed}")
        return "; ".join(f"{name}: {log.splitlines()[-1][:70]}" for name, (_, log) in ended.items())

    def _run_job(self, name: str) -> tuple[str, str]:
        """Run a CronJob now. Returns how its Job ended, and the log of its pods. Deletes it."""
        kube, job = self._kube, f"{name}-now"
        kube.run("create", "job", job, f"--from=cronjob/{NAME}-{name}")

        def ends() -> set[str]:
            found = kube.get("job", job)["status"].get("conditions", ())
            return {"Complete", "Failed"} & {c["type"] for c in found if c["status"] == "True"}

        try:
            wait_for(lambda: bool(ends()), f"the job {name} ends", ROLLED_S)
            return ends().pop(), kube.run("logs", f"job/{job}", "--all-containers").strip()
        finally:
            kube.run("delete", "job", job, "--wait=true")

    def _failing_job(self) -> str:
        """Change a belief behind the service's back: the job `verify-all` must fail. Restore it."""
        store: Any = redis.Redis("redis.servers")
        key = next(store.scan_iter("{*}:belief:?*:*"))
        (field, value), *_ = store.hgetall(key).items()
        middle = len(value) // 2  # the last bytes say what corrections did, which a rebuild forgets
        store.hset(key, field, value[:middle] + bytes([value[middle] ^ 1]) + value[middle + 1 :])
        try:
            state, log = self._run_job("verify-all")
        finally:
            store.hset(key, field, value)
        if state != "Failed":
            raise Failed(f"{state}: {log[-300:]}")
        return f"one bit of a belief changed: Failed, {log.splitlines()[-1][:90]}"

    def _upgrade(self) -> str:
        before = self._identities()
        self._helm("upgrade", settings__readyLag="9000")
        self._rolled(*ROLES)
        if same := before & self._identities():
            raise Failed(f"not restarted: {same}")
        return f"{len(before)} pods replaced one by one"

    def _identities(self) -> set[str]:
        return {pod["metadata"]["uid"] for role in ROLES for pod in self._kube.pods(role)}

    def _kill(self) -> str:
        began_s = time.monotonic()
        for role in ROLES:
            self._kube.run("delete", "pod", f"{NAME}-{role}-0", "--grace-period=0", "--force")
        wait_for(self._all_ready, "the pods are back", ROLLED_S)
        return f"an estimator and an updater gone at once, ready after {since(began_s)}"

    def _all_ready(self) -> bool:
        wanted = sum(self._kube.get("statefulset", f"{NAME}-{role}")["spec"]["replicas"]
                     for role in ROLES)  # fmt: skip
        pods = [pod for role in ROLES for pod in self._kube.pods(role)]
        living = [p for p in pods if "deletionTimestamp" not in p["metadata"]]
        return len(living) == wanted and all(is_ready(pod) for pod in living)

    def _change_ladders(self) -> str:
        """Give all workers new parameters from an offset on, which the load passes."""
        end = self._probes.partition_end("ranked-eu")
        self._ladders = self._folder / "changed.toml"
        text = LADDERS.read_text(encoding="utf-8")
        changed = text + CHANGE.format(offset=end + AHEAD)
        self._ladders.write_text(changed, encoding="utf-8")
        self._helm("upgrade")
        self._rolled(*ROLES)
        passed = end + AHEAD + 20
        wait_for(lambda: self._probes.partition_end("ranked-eu") > passed, "it is passed", ROLLED_S)
        return f"in force from offset {end + AHEAD}, which was passed"

    def _scale(self) -> str:
        self._helm("upgrade", updater__replicas="1")
        wait_for(lambda: len(self._kube.pods("updater")) == 1, "one updater", ROLLED_S)
        self._rolled("updater")
        began_s = time.monotonic()
        self._helm("upgrade", updater__replicas="3")
        self._rolled("updater")
        return f"three ready after {since(began_s)}"

    def _scaled_by_lag(self) -> str:
        """KEDA keeps all workers at 0 while rounds arrive. Then it starts more than before."""
        kube = self._kube
        few = {f"{role}__replicas": "1" for role in ROLES}
        self._helm("upgrade", keda__enabled="true", keda__pollingInterval="2",
                   keda__lagThreshold=str(LAG), **few)  # fmt: skip
        kube.run("wait", "scaledobjects", "--all", "--for=condition=Ready", "--timeout=90s")
        wait_for(lambda: self._wanted() == dict.fromkeys(ROLES, 1), "one of each", ROLLED_S)
        both = [f"{NAME}-{role}" for role in ROLES]
        kube.run("annotate", "scaledobject", *both, f"{PAUSED}=0")
        wait_for(lambda: not any(map(kube.pods, ROLES)), "KEDA holds all at 0", ROLLED_S)
        with Load(KAFKA, self._folder, FLOOD_PER_S) as load:
            wait_for(lambda: load.rounds > BACKLOG, "rounds wait", ROLLED_S)
            kube.run("annotate", "scaledobject", *both, f"{PAUSED}-")
            wait_for(lambda: max(self._wanted().values()) > 1, "KEDA adds workers", ROLLED_S)
            most = ", ".join(f"{count} {role}s" for role, count in self._wanted().items())
            output = load.finish()
        self._helm("upgrade", keda__enabled="false", estimator__replicas="2", updater__replicas="2")
        self._rolled(*ROLES)
        return f"all kept at 0, then {most}; {output}"

    def _wanted(self) -> dict[str, int]:
        """By role, the number of pods that are wanted."""
        sets = {role: self._kube.get("statefulset", f"{NAME}-{role}") for role in ROLES}
        return {role: int(each["spec"]["replicas"]) for role, each in sets.items()}

    def _drain(self) -> str:
        """Drain the only node: no evicted pod comes back before the node is uncordoned."""
        kube = self._kube
        drain = (
            "drain", NODE, f"--pod-selector=app.kubernetes.io/instance={RELEASE}",
            "--delete-emptydir-data", "--ignore-daemonsets",
        )  # fmt: skip
        refused = kube.tried(*drain, "--timeout=20s")
        output = refused.stdout + refused.stderr
        count = output.count("violate the pod's disruption budget")
        up = {role: sum(is_ready(pod) for pod in kube.pods(role)) for role in ROLES}
        kube.run("uncordon", NODE)
        if refused.returncode == 0 or not count:
            raise Failed(f"no eviction was refused: {output[-300:]}")
        if min(up.values()) < 1:
            raise Failed(f"ready when evictions were refused: {up}")
        wait_for(self._all_ready, "the evicted pods are back", ROLLED_S)
        left = ", ".join(f"{n} {role}s" for role, n in up.items())
        return f"{output.count('evicting pod')} evictions asked, {count} refused by the budget, " \
            f"{left} at work during the drain"  # fmt: skip

    def _refused(self) -> str:
        before = self._kube.helmed("history", RELEASE, "--output=json")
        output = self._kube.helm_tried("upgrade", RELEASE, CHART, VALUES, "--set=settings.shards=0")
        if output.returncode == 0:
            raise Failed("settings.shards=0 was taken")
        after = self._kube.helmed("history", RELEASE, "--output=json")
        if len(json.loads(before)) != len(json.loads(after)):
            raise Failed("there is a new revision")
        return f"refused: {' '.join(output.stderr.split())[-120:]}; no new revision"

    def _uninstall(self) -> str:
        self._kube.helmed("uninstall", RELEASE, "--wait")
        kinds = "statefulsets,deployments,services,configmaps,secrets,pdb,networkpolicies,pods,"
        kinds += "cronjobs,jobs"
        selector = f"--selector=app.kubernetes.io/instance={RELEASE}"
        wait_for(lambda: not self._kube.get(kinds, selector)["items"], "all is gone", 60.0)
        return f"nothing of it left in {NAMESPACE}"

    def _state(self) -> str:
        """The pods and the last events, to find out why a check failed."""
        pods = self._kube.tried("get", "pods", "--output=wide").stdout
        events = self._kube.tried("get", "events", "--sort-by=.lastTimestamp").stdout
        logs = [
            self._kube.tried("logs", line.split()[0], "--tail=4").stdout
            for line in pods.splitlines()[1:]
            if " Running " not in line
        ]
        self._report.say("\n".join([pods, *events.splitlines()[-15:], *logs]))
        return "; ".join(" ".join(line.split()[:4]) for line in pods.splitlines()[1:])


def season() -> str:
    """Change nothing, for the time of a season."""
    time.sleep(SEASON_S)
    return ""


def since(began_s: float) -> str:
    """The seconds since a time, as a text."""
    return f"{time.monotonic() - began_s:.0f} s"
