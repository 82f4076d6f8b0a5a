"""KEDA asks for the lag of the very groups that the service has."""

import pytest

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from tests.helm.chart import Resource, of_kind, the, worker_pods

TOPICS = Topics.of(Settings(topic_prefix="ranked."))


def triggers(*changes: str) -> list[list[Resource]]:
    """The triggers of each ScaledObject."""
    return [each["spec"]["triggers"] for each in of_kind("ScaledObject", "secured", *changes)]


def test_each_role_is_scaled_by_its_own_lag() -> None:
    """Roles in one pod by either."""
    expected = [
        (f"ranked.{ESTIMATORS}", TOPICS.rounds),
        (f"ranked.{UPDATERS}", TOPICS.parts),
    ]
    apart = [
        (each["metadata"]["consumerGroup"], each["metadata"]["topic"]) for (each,) in triggers()
    ]
    (both,) = triggers("role=all")
    assert apart == expected
    assert [(t["metadata"]["consumerGroup"], t["metadata"]["topic"]) for t in both] == expected


def test_no_more_pods_than_shares() -> None:
    """16 partitions, 32 shards; and no fewer than asked for."""
    limits = [
        (each["spec"]["minReplicaCount"], each["spec"]["maxReplicaCount"])
        for each in of_kind("ScaledObject", "secured", "updater.replicas=40")
    ]
    assert limits == [(2, 16), (40, 40)]


def test_kedas_replicas_are_not_set_back() -> None:
    """A StatefulSet with replicas would undo the scaling at each upgrade."""
    assert all("replicas" not in each["spec"] for each in of_kind("StatefulSet", "secured"))
    assert all(each["spec"]["replicas"] == 2 for each in of_kind("StatefulSet", "separate"))
    targets = {
        each["spec"]["scaleTargetRef"]["name"] for each in of_kind("ScaledObject", "secured")
    }
    assert targets == {each["metadata"]["name"] for each in of_kind("StatefulSet", "secured")}


def test_markers_start_no_pod() -> None:
    """A transaction's marker at the end of every partition is a lag that stays."""
    for each in of_kind("ScaledObject", "secured"):
        (trigger,) = each["spec"]["triggers"]
        assert int(trigger["metadata"]["lagThreshold"]) >= each["spec"]["maxReplicaCount"]
        assert trigger["metadata"]["excludePersistentLag"] == "true"


@pytest.mark.parametrize(
    ("mechanism", "called"),
    [("PLAIN", "plaintext"), ("SCRAM-SHA-256", "scram_sha256"), ("SCRAM-SHA-512", "scram_sha512")],
)
def test_keda_shows_the_workers_credentials(mechanism: str, called: str) -> None:
    """The password from the Secret, the name from the worker's own variable."""
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
    """TLS by the system's authorities needs none either."""
    assert of_kind("TriggerAuthentication", "observed") == []
    (trigger,) = of_kind("ScaledObject", "observed", "role=separate")[0]["spec"]["triggers"]
    assert "authenticationRef" not in trigger
    assert trigger["metadata"]["tls"] == "enable"
