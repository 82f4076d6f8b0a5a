"""The CronJob that starts seasons by calendar, and keeps the standings of those that end."""

import json
from typing import Any

from stream_rater.cli.app import main
from tests.helm.chart import Resource, of_kind, refusal, resources, the, worker_pods

CASE = "serving"


def job() -> Resource:
    """The pod of the job."""
    found: Resource = the("CronJob", CASE)["spec"]["jobTemplate"]["spec"]["template"]
    return found


def test_it_is_off_unless_asked_for() -> None:
    """Nothing of it is in the chart then."""
    for case in ("separate", "secured", "observed"):
        assert not of_kind("CronJob", case)
        components = [e["metadata"]["labels"].get("app.kubernetes.io/component")
                      for e in resources(case)]  # fmt: skip
        assert "seasons" not in components


def test_it_starts_the_season_and_then_keeps_the_standings() -> None:
    """All ladders begin their season before any standings are kept. The words are those of our
    commands."""
    pod = job()["spec"]
    starts = [each["args"] for each in pod["initContainers"]]
    keeps = [each["args"] for each in pod["containers"]]
    last = ["--settings", "/etc/stream-rater/config/settings.toml"]
    assert starts == [
        ["correct", "season", ladder, "%Y%m", "--keep", "0.8", "--sigma", "120", *last]
        for ladder in ("ranked-eu", "ranked-na")
    ]
    assert keeps == [
        ["season-standings", ladder, "--wait", "3600", *last]
        for ladder in ("ranked-eu", "ranked-na")
    ]
    for words in (*starts, *keeps):
        command: Any = main
        while hasattr(command, "commands"):
            command, words = command.commands[words[0]], words[1:]
        options = {name for each in command.params for name in each.opts}
        assert {each for each in words if each.startswith("--")} <= options


def test_runs_do_not_overlap() -> None:
    """One run at a time, by the clock that names the seasons; a container that fails runs again."""
    spec = the("CronJob", CASE)["spec"]
    assert (spec["concurrencyPolicy"], spec["timeZone"]) == ("Forbid", "Etc/UTC")
    assert spec["schedule"] == "0 6 1 */3 *"
    assert job()["spec"]["restartPolicy"] == "OnFailure"


def test_its_pods_are_restricted_and_are_no_workers() -> None:
    """As all pods of the chart are. No selector of workers finds them."""
    pod, labels = job()["spec"], job()["metadata"]["labels"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    for each in (*pod["initContainers"], *pod["containers"]):
        assert each["securityContext"]["readOnlyRootFilesystem"] is True
        assert each["resources"]["requests"] and each["resources"]["limits"]
        mounts = {mount["name"] for mount in each["volumeMounts"]}
        assert mounts <= {volume["name"] for volume in pod["volumes"]}
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind("NetworkPolicy", CASE)}
    own = policies.pop("rater-stream-rater-seasons")
    assert own["podSelector"]["matchLabels"].items() <= labels.items()
    assert own["egress"] == policies["rater-stream-rater"]["egress"]
    assert "ingress" not in own
    others = [each["podSelector"]["matchLabels"] for each in policies.values()]
    others += [each["spec"]["selector"] for each in of_kind("Service", CASE)]
    others += [e["spec"]["selector"]["matchLabels"] for e in of_kind("PodDisruptionBudget", CASE)]
    assert not any(each.items() <= labels.items() for each in others)
    for worker in worker_pods(CASE).values():
        assert not own["podSelector"]["matchLabels"].items() <= worker["metadata"]["labels"].items()


def test_what_could_not_start_a_season_is_refused() -> None:
    """With the name of the values."""
    for change in (
        {"enabled": True}, {"enabled": True, "ladders": ["-x"]}, {"number": "autumn"},
        {"keep": 1.5}, {"sigma": -1}, {"schedule": ""},
    ):  # fmt: skip
        assert "seasons" in refusal(f"--set-json=seasons={json.dumps(change)}")
