"""Strimzi's resources for the service: the topics as it creates them, and users with the rights of
docs/reference/access.md. `make chart` writes them into the chart's examples."""

from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topic_rules import season_topic_settings, topic_settings
from stream_rater.config.settings import Settings
from tests.helm.chart import CHART
from tests.integration.rights import least

FILE = CHART / "examples" / "strimzi.yaml"
HEAD = """\
# Topics and users for Strimzi, apiVersion v1. `make chart` makes them of what the service itself
# creates, and of docs/reference/access.md. Name your cluster in strimzi.io/cluster. Partitions and
# shards are fixed (values.yaml, at its top). The chart's values for it: ci/strimzi-values.yaml.
"""
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())["settings"]
SETTINGS = Settings(**{name: VALUES[name] for name in ("partitions", "shards", "replication")})
USERS = {
    "rater": ("all", "verify", "checkpoint", "correct", "season-standings"),
    "rater-serve": ("serve", "serve with beliefs", "serve with min_offset"),
}
"""By name, whose rights a user has: the workers with all jobs, and `serve` that takes no rounds."""
KINDS = {"TOPIC": "topic", "GROUP": "group", "TRANSACTIONAL_ID": "transactionalId"}


def text() -> str:
    """The file of all resources."""
    form: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "width": 110}
    return HEAD + yaml.safe_dump_all(_resources(), explicit_start=True, **form)


def _resources() -> Iterator[dict[str, Any]]:
    topics = topic_settings(SETTINGS) | {topic_of(SETTINGS): season_topic_settings(SETTINGS)}
    for name, (partitions, config) in topics.items():
        spec = {"partitions": partitions, "replicas": SETTINGS.replication, "config": config}
        yield _resource("KafkaTopic", name, spec)
    for name, roles in USERS.items():
        rights = {"type": "simple", "acls": [*_acls(roles)]}
        spec = {"authentication": {"type": "scram-sha-512"}, "authorization": rights}
        yield _resource("KafkaUser", name, spec)


def _acls(roles: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The rules of a user, one for each topic, group and transactional id."""
    found: dict[tuple[str, str, bool], set[str]] = {}
    for each in (acl for role in roles for acl in least(role, SETTINGS).kafka):
        operation = each.operation.title().replace("_", "")
        found.setdefault((each.kind, each.name, each.prefixed), set()).add(operation)
    for (kind, name, prefixed), operations in sorted(found.items()):
        resource = {"type": KINDS[kind], "name": name}
        resource["patternType"] = "prefix" if prefixed else "literal"
        yield {"resource": resource, "operations": sorted(operations)}


def _resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    named = {"name": name, "labels": {"strimzi.io/cluster": "my-cluster"}}
    return {"apiVersion": "kafka.strimzi.io/v1", "kind": kind, "metadata": named, "spec": spec}
