"""Wrong values are refused before anything is made of them, each for its own reason."""

import pytest

from tests.helm.chart import helm, refusal

SASL = "kafka.sasl.username=u,kafka.sasl.existingSecret=s"

WRONG = {
    # unknown
    "replicas=3": "additional properties 'replicas' not allowed",
    "kafka.bootstrapserver=k:9092": "additional properties 'bootstrapserver' not allowed",
    "settings.instanceId=a": "additional properties 'instanceId' not allowed",
    "estimator.resources.request.cpu=1": "additional properties 'request' not allowed",
    # of another type, or out of range
    "settings.shards=eight": "got string, want integer",
    "settings.shards=0": "minimum: got 0, want 1",
    "settings.partitions=-1": "minimum: got -1, want 1",
    "settings.replication=8": "maximum: got 8, want 7",
    "settings.sessionTimeoutMs=1000": "minimum: got 1,000, want 6,000",
    "settings.logLevel=loud": "value must be one of 'debug'",
    "estimator.replicas=0": "minimum: got 0, want 1",
    "estimator.resources.limits.memory=lots": "does not match pattern",
    "role=estimator": "value must be one of 'separate', 'all'",
    "terminationGracePeriodSeconds=5": "minimum: got 5, want 11",
    "podDisruptionBudget.maxUnavailable=0": "minimum: got 0, want 1",
    "podDisruptionBudget.enabled=maybe": "got string, want boolean",
    "serviceMonitor.interval=often": "does not match pattern",
    "runAsUser=0": "minimum: got 0, want 1",
    "networkPolicy.kafkaPorts={70000}": "maximum: got 70,000, want 65,535",
    "image.tag=a b": "does not match pattern",
    "image.digest=latest": "does not match pattern",
    "fullnameOverride=My_Ratings": "does not match pattern",
    # addresses
    "kafka.bootstrapServers=": "does not match pattern",
    "kafka.bootstrapServers=kafka": "does not match pattern",
    "redis.url=redis:6379": "does not match pattern",
    # secrets where all can read them
    "redis.url=redis://user:password@redis:6379": "does not match pattern",
    "redis.url=redis://redis:6379?password=x": "does not match pattern",
    "redis.password=x": "additional properties 'password' not allowed",
    "kafka.sasl.password=x": "additional properties 'password' not allowed",
    r"kafka.options.sasl\.password=x": "invalid propertyName 'sasl.password'",
    r"kafka.options.ssl\.key\.pem=x": "invalid propertyName 'ssl.key.pem'",
    r"kafka.options.sasl\.oauthbearer\.client\.secret=x": "invalid propertyName",
    "extraEnv[0].name=API_TOKEN,extraEnv[0].value=x": "missing property 'valueFrom'",
    # told twice
    r"kafka.options.bootstrap\.servers=k:1": "invalid propertyName 'bootstrap.servers'",
    "extraEnv[0].name=STREAM_RATER_REDIS,extraEnv[0].value=x": "'not' failed",
    # half of what belongs together
    "kafka.securityProtocol=sasl_ssl": "minLength: got 0, want 1",
    SASL: "maxLength: got 1, want 0",
    f"kafka.securityProtocol=sasl_plaintext,{SASL},kafka.tls.existingSecret=t": "maxLength",
    "kafka.securityProtocol=ssl,kafka.tls.certificateKey=c": "minLength: got 0, want 1",
    "redis.tls.existingSecret=t": "maxLength: got 1, want 0",
    "redis.username=rater": "minLength: got 0, want 1",
    "redis.existingSecret=s,redis.passwordKey=": "minLength: got 0, want 1",
}


@pytest.mark.parametrize("change", WRONG)
def test_is_refused(change: str) -> None:
    """By the schema, which names the place."""
    told = refusal(f"--set={change}")
    assert "values don't meet the specifications" in told
    assert WRONG[change] in told


def test_a_threshold_that_markers_reach_is_refused() -> None:
    """It depends on the number of shards, which no schema can compare."""
    told = refusal("--set=keda.enabled=true,keda.lagThreshold=7")
    assert "keda.lagThreshold: less than 8: transaction markers alone look like that lag" in told


@pytest.mark.parametrize(
    "change",
    [
        "podDisruptionBudget.maxUnavailable=50%",
        "runAsUser=null",
        "redis.url=rediss://redis",
        "kafka.bootstrapServers=a:1\\,b:2\\, c:3",
        f"kafka.securityProtocol=sasl_plaintext,{SASL}",
        "global.imageRegistry=anything",
    ],
)
def test_is_taken(change: str) -> None:
    """What is right, on the border."""
    done = helm("template", "rater", ".", f"--set={change}")
    assert done.returncode == 0, done.stderr
