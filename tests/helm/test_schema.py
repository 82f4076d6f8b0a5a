"""Wrong values are refused before anything is made of them, each for its own reason."""

from tests.helm.chart import helm, refusal

SASL = "kafka.sasl.username=u,kafka.sasl.existingSecret=s"
TOKENS = "kafka.securityProtocol=sasl_ssl,kafka.sasl.mechanism=OAUTHBEARER"
SENTINEL = "redis.url=redis+sentinel://a:26379\\,b:26379/name"

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
    "settings.correctionThreshold=2000000000": "maximum: got 2×10⁰⁹, want 1×10⁰⁹",
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
    "estimator.resources.limits.memory=1..2": "does not match pattern",
    "estimator.resources.limits.memory=-1": "minimum: got -1, want 0",
    "estimator.resources.limits.memry=1Gi": "invalid propertyName 'memry'",
    "serviceMonitor.interval=0s": "does not match pattern",
    # no names: of a Service, which has neither a dot nor a digit at its beginning, or of a Secret
    "fullnameOverride=My_Ratings": "does not match pattern",
    "fullnameOverride=9ratings": "does not match pattern",
    "fullnameOverride=a.b": "does not match pattern",
    "nameOverride=a..b": "does not match pattern",
    "serviceAccount.name=a..b": "does not match pattern",
    "podLabels.team=a b": "does not match pattern",
    "topologySpread.keys[0]=a\n    whenUnsatisfiable: DoNotSchedule": "does not match pattern",
    # instead of what the chart says
    r"podLabels.app\.kubernetes\.io/component=x": "invalid propertyName 'app.kubernetes.io/comp",
    r"serviceMonitor.labels.helm\.sh/chart=x": "invalid propertyName 'helm.sh/chart'",
    "podAnnotations.checksum/config=x": "invalid propertyName 'checksum/config'",
    # addresses
    "kafka.bootstrapServers=": "does not match pattern",
    "kafka.bootstrapServers=kafka": "does not match pattern",
    "kafka.bootstrapServers=k:99999": "does not match pattern",
    "kafka.bootstrapServers=k:9092\\,l:65536": "does not match pattern",
    "redis.url=redis:6379": "does not match pattern",
    "redis.url=redis://redis:99999": "does not match pattern",
    "redis.url=redis://redis:0": "does not match pattern",
    "tracing.endpoint=collector:4318": "does not match pattern",
    # secrets where all can read them
    "redis.url=redis://user:password@redis:6379": "does not match pattern",
    "redis.url=redis://redis:6379?password=x": "does not match pattern",
    "redis.password=x": "additional properties 'password' not allowed",
    "kafka.sasl.password=x": "additional properties 'password' not allowed",
    r"kafka.options.sasl\.password=x": "invalid propertyName 'sasl.password'",
    r"kafka.options.ssl\.key\.pem=x": "invalid propertyName 'ssl.key.pem'",
    r"kafka.options.sasl\.oauthbearer\.client\.secret=x": "invalid propertyName",
    r"kafka.options.sasl\.oauthbearer\.assertion\.private\.key\.passphrase=x": "invalid property",
    "extraEnv[0].name=API_TOKEN,extraEnv[0].value=x": "missing property 'valueFrom'",
    "extraEnv[0].name=proxy_password,extraEnv[0].value=x": "missing property 'valueFrom'",
    "extraEnv[0].name=DB_PASS,extraEnv[0].value=x": "missing property 'valueFrom'",
    "extraEnv[0].name=ALL_PROXY,extraEnv[0].value=socks5://user:word@gate:1080": "'not' failed",
    # set twice
    r"kafka.options.bootstrap\.servers=k:1": "invalid propertyName 'bootstrap.servers'",
    "extraEnv[0].name=OTEL_EXPORTER_OTLP_HEADERS,extraEnv[0].value=x": "property 'valueFrom'",
    "extraEnv[0].name=OTEL_EXPORTER_OTLP_ENDPOINT,extraEnv[0].value=x": "'not' failed",
    "extraEnv[0].name=STREAM_RATER_REDIS,extraEnv[0].value=x": "'not' failed",
    # half of what belongs together
    "kafka.securityProtocol=sasl_ssl": "minLength: got 0, want 1",
    SASL: "maxLength: got 1, want 0",
    f"kafka.securityProtocol=sasl_plaintext,{SASL},kafka.tls.existingSecret=t": "maxLength",
    "kafka.securityProtocol=ssl,kafka.tls.certificateKey=c": "minLength: got 0, want 1",
    "kafka.securityProtocol=ssl,kafka.tls.existingSecret=t,kafka.tls.keyKey=k": "minLength: got 0",
    "redis.tls.existingSecret=t": "maxLength: got 1, want 0",
    "redis.username=rater": "minLength: got 0, want 1",
    "redis.existingSecret=s,redis.passwordKey=": "minLength: got 0, want 1",
    "redis.url=redis+sentinel://a\\,b:26379/name": "does not match pattern",
    "redis.url=redis+sentinel://a:26379": "does not match pattern",
    "redis.sentinel.existingSecret=s": "maxLength: got 1, want 0",
    f"{SENTINEL},redis.cluster=true": "'/redis/cluster': value must be false",
    f"{SENTINEL},redis.tls.existingSecret=t": "maxLength: got 1, want 0",
    f"{SENTINEL},redis.sentinel.existingSecret=s,redis.sentinel.passwordKey=": "minLength: got 0",
    "kafka.sasl.mechanism=OAUTHBEARER": "'not' failed",
    "kafka.sasl.token=signer:token": "maxLength: got 12, want 0",
    f"{TOKENS},kafka.sasl.token=signer": "does not match pattern",
    f"{TOKENS},kafka.sasl.existingSecret=s": "maxLength: got 1, want 0",
    f"{TOKENS},serve.kafka.existingSecret=s": "maxLength: got 1, want 0",
    f"{TOKENS},keda.enabled=true": "'/keda/enabled': value must be false",
}


def test_is_refused() -> None:
    """By the schema, which names the place."""
    taken = []
    for change, why in WRONG.items():
        reported = refusal(f"--set={change}")
        if "values don't meet the specifications" not in reported or why not in reported:
            taken.append((change, reported))
    assert taken == []


UNCOMPARED = {
    "--set=keda.enabled=true,keda.lagThreshold=3":
        "keda.lagThreshold: less than 4: transaction markers alone look like that lag",
    "--set=serviceMonitor.enabled=true,serviceMonitor.scrapeTimeout=60s":
        "serviceMonitor.scrapeTimeout: 60s is longer than the interval, 15s",
} | {
    f"--set-string=fullnameOverride={name}":
        f"{name}: YAML takes it for another value than a text: set another"
    for name in ("true", "null", "off")
}  # fmt: skip
"""What no schema can compare: with the number of shards; with the interval, or Prometheus would
take none of its configuration; a name that Kubernetes would refuse without a word that helps."""


def test_what_no_schema_can_compare_is_refused() -> None:
    """In words of our own. So is a release that names no Service: Helm accepts the name, and it is
    not among the values."""
    for option, why in UNCOMPARED.items():
        assert why in refusal(option)
    for release in ("9ratings", "a.b"):
        done = helm("template", release, ".")
        assert done.returncode != 0
        assert f"{release}-stream-rater: no name for a Service: set fullnameOverride" in done.stderr
        assert helm("template", release, ".", "--set=fullnameOverride=ratings").returncode == 0


TAKEN = (
    "podDisruptionBudget.maxUnavailable=50%",
    "runAsUser=null",
    "redis.url=rediss://redis",
    SENTINEL,
    f"{SENTINEL}/15,redis.sentinel.existingSecret=s",
    TOKENS,
    "redis.url=rediss://redis:65535/15",
    "serviceAccount.name=a.b-c",
    "serviceMonitor.enabled=true,serviceMonitor.scrapeTimeout=15000ms",
    "estimator.resources.limits.memory=1.5Gi",
    "kafka.bootstrapServers=a:1\\,b:2\\, c:3",
    f"kafka.securityProtocol=sasl_plaintext,{SASL}",
    "global.imageRegistry=anything",
    "extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=http://gate:8080",
)


def test_is_taken() -> None:
    """What is right, on the border."""
    done = {change: helm("template", "rater", ".", f"--set={change}") for change in TAKEN}
    assert {change: each.stderr for change, each in done.items() if each.returncode} == {}
