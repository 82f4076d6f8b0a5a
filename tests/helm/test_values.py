"""Wrong values are refused, each with its reason. Odd values, such as texts that look like numbers,
stay texts, and cannot add anything to a resource."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import yaml

from stream_rater.config.settings import Settings
from tests.builders.cases import cases
from tests.helm.chart import CHART, Resource, helm, refusal, values_of, worker_pods

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
    "jobs.verify.schedule=daily": "does not match pattern",
    "jobs.verify.schedule=30 24 * * *": "does not match pattern",
    "seasons.schedule=0 6 1 * * *": "does not match pattern",
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
    "estimator.resources.limits.memry=1Gi": "additional properties 'memry' not allowed",
    "networkPolicy.to.dns[0].podselector.a=b": "additional properties 'podselector' n",
    "networkPolicy.to.redis={10.0.0.0/8}": "got string, want object",
    "serviceMonitor.interval=0s": "does not match pattern",
    # no names: of a Service, which has neither a dot nor a digit at its beginning, or of a Secret
    "fullnameOverride=My_Ratings": "does not match pattern",
    "fullnameOverride=9ratings": "does not match pattern",
    "fullnameOverride=a.b": "does not match pattern",
    "nameOverride=a..b": "does not match pattern",
    "serviceAccount.name=a..b": "does not match pattern",
    "podLabels.team=a b": "does not match pattern",
    "topologySpread.keys[0]=a\n    whenUnsatisfiable: DoNotSchedule": "does not match pattern",
    r"kafka.options.Retries=1": "additional properties 'Retries' not allowed",
    "kafka.securityProtocol=sasl-ssl": "value must be one of 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT'",
    "kafka.sasl.mechanism=SHA-512": "value must be one of 'SCRAM-SHA-512', 'SCRAM-SHA-256', 'PLAIN",
    f"{TOKENS},kafka.sasl.token=signer": "does not match pattern",
    "serve.httpRoute.parentRefs[0].nam=x": "missing property 'name'",
    "redis.password=x,kafka.sasl.password=x": "additional properties 'password' not allowed",
}


def test_is_refused() -> None:
    """The schema refuses the value and names its place."""
    taken = []
    for change, why in WRONG.items():
        reported = refusal(f"--set={change}")
        if "values don't meet the specifications" not in reported or why not in reported:
            taken.append((change, reported))
    assert taken == []


PUBLISHED = "serve.enabled=true,serve.ingress.enabled=true,serve.ingress.host=a.example"
ROUTED = "serve.enabled=true,serve.httpRoute.enabled=true,serve.httpRoute.host=a.example"
GATE = f"{ROUTED},serve.httpRoute.parentRefs[0].name=gate"
PASSWORD = "give it by valueFrom, from a Secret"
NO_LISTENER = "name a listener with TLS in serve.httpRoute.parentRefs, and set serve.httpRoute.tlsE"

UNCOMPARED = {
    # instead of what the chart says
    r"podLabels.app\.kubernetes\.io/component=x": "podLabels: app.kubernetes.io/component: the cha",
    "podAnnotations.checksum/config=x": "podAnnotations: checksum/config: the chart sets it: choos",
    # addresses
    "kafka.bootstrapServers=": 'kafka.bootstrapServers: "": write host:port, several separated by',
    "kafka.bootstrapServers=k:99999": "write host:port",
    "kafka.bootstrapServers=k:9092\\,l:65536": "write host:port",
    "redis.url=redis:6379": 'redis.url: "redis:6379": write redis://host:port/database, or rediss:',
    "redis.url=redis://redis:0": "write redis://host:port",
    "tracing.endpoint=collector:4318": 'tracing.endpoint: "collector:4318": write http://host:port',
    # secrets where all can read them
    "redis.url=redis://user:password@redis:6379": "redis.url: a user or a password in it could be",
    "redis.url=redis://redis:6379?password=x": "name the Secret with the password in redis.existin",
    r"kafka.options.sasl\.password=x": "kafka.options: sasl.password: a secret, which all",
    r"kafka.options.sasl\.oauthbearer\.assertion\.private\.key\.passphrase=x": "a secret, which al",
    "extraEnv[0].name=API_TOKEN,extraEnv[0].value=x": "extraEnv: API_TOKEN: looks like a secret:",
    "extraEnv[0].name=OTEL_EXPORTER_OTLP_HEADERS,extraEnv[0].value=x": PASSWORD,
    "extraEnv[0].name=ALL_PROXY,extraEnv[0].value=socks5://user:word@gate:1080": PASSWORD,
    # set twice
    r"kafka.options.bootstrap\.servers=k:1": "bootstrap.servers: has a value of its own, in kafka",
    r"kafka.options.transactional\.id=k": "transactional.id: the service sets it: see settings",
    "extraEnv[0].name=OTEL_EXPORTER_OTLP_ENDPOINT,extraEnv[0].value=x": "set tracing.endpoint",
    "extraEnv[0].name=STREAM_RATER_REDIS,extraEnv[0].value=x": "STREAM_RATER_REDIS: a setting: it",
    # half of what belongs together
    "kafka.securityProtocol=SASL_SSL": "kafka.sasl: SCRAM-SHA-512 needs a user and a password: set",
    SASL: "kafka.securityProtocol: PLAINTEXT logs nobody in, and kafka.sasl has a user or tokens:",
    f"kafka.securityProtocol=sasl_plaintext,{SASL},kafka.tls.existingSecret=t":
        "kafka.tls: kafka.securityProtocol has no TLS: set it to SSL or SASL_SSL",
    "kafka.securityProtocol=ssl,kafka.tls.certificateKey=c": "kafka.tls: a client's certificate ta",
    "kafka.securityProtocol=ssl,kafka.tls.certificateSecret=t": "set all three",
    "redis.tls.existingSecret=t": "redis.tls: redis.url has no TLS: begin it with rediss",
    "redis.username=rater": "redis.username: rater has no password: name its Secret in redis.exist",
    "redis.existingSecret=s,redis.passwordKey=": "redis.passwordKey: empty: name the key of the pa",
    "redis.url=redis+sentinel://a\\,b:26379/name": "with Sentinel redis+sentinel://host:port,host:",
    "redis.url=redis+sentinel://a:26379": "with Sentinel redis+sentinel://host:port,host:port/NAME",
    "redis.sentinel.existingSecret=s": "redis.sentinel: redis.url names no sentinels: begin it wit",
    f"{SENTINEL},redis.cluster=true": "redis.cluster: Sentinel watches no cluster: set it to false",
    f"{SENTINEL},redis.tls.existingSecret=t": "redis.tls: redis.url has no TLS",
    f"{SENTINEL},redis.sentinel.existingSecret=s,redis.sentinel.passwordKey=":
        "redis.sentinel.passwordKey: empty",
    "kafka.sasl.mechanism=OAUTHBEARER": "kafka.securityProtocol: PLAINTEXT logs nobody in",
    "kafka.sasl.token=signer:token": "kafka.securityProtocol: PLAINTEXT logs nobody in",
    f"kafka.securityProtocol=SASL_SSL,{SASL},kafka.sasl.token=a:b": "SCRAM-SHA-512 has no tokens:",
    f"{TOKENS},kafka.sasl.existingSecret=s": "kafka.sasl.mechanism: OAUTHBEARER logs in by tokens",
    f"{TOKENS},serve.kafka.existingSecret=s": "kafka.sasl.mechanism: OAUTHBEARER logs in by tokens",
    f"{TOKENS},keda.enabled=true": "keda.enabled: KEDA cannot ask a Kafka with OAUTHBEARER",
    "serve.redis.username=u": "serve.redis.username: u has no password",
    # ways to the API
    "serve.ingress.enabled=true": "serve.ingress.host: empty: name the host of the API",
    ROUTED: "serve.httpRoute.parentRefs: empty: name the Gateway",
    f"{PUBLISHED},serve.token.existingSecret=t":
        "serve.ingress: without TLS whoever is on the way reads the tokens of requests: name the S",
    f"{PUBLISHED},serve.writeToken.existingSecret=t": "set serve.ingress.tlsElsewhere if TLS ends",
    f"{GATE},serve.token.existingSecret=t": NO_LISTENER,
    f"{GATE},serve.ingress.tlsSecret=c,serve.token.existingSecret=t": NO_LISTENER,
    "serve.enabled=true,serve.token.existingSecret=t,serve.writeToken.existingSecret=t":
        "serve.writeToken: the same as serve.token",
    # the rest
    "ladders=ladders.toml": "ladders: no table [ladders]: give the text of the file",
    "seasons.enabled=true": "seasons.ladders: empty",
    "jobs.weekly.enabled=true,jobs.weekly.schedule=0 1 * * *": "jobs.weekly.args: empty: write the",
    "jobs.verify.enabled=true,jobs.verify.schedule=": "jobs.verify.schedule: empty: write it as in",
    "jobs.seasons.enabled=false": "jobs.seasons: no name for a job of yours",
    "keda.enabled=true,keda.lagThreshold=3": "keda.lagThreshold: less than 4, the partitions or sh",
    "serviceMonitor.enabled=true,serviceMonitor.scrapeTimeout=60s":
        "serviceMonitor.scrapeTimeout: 60s is longer than the interval, 15s",
}  # fmt: skip
"""Values that a schema cannot compare, or not refuse in a way that says what to do."""
TAKEN_FOR_NO_TEXT = ("true", "null", "off")


def test_what_no_schema_can_compare_is_refused() -> None:
    """Templates refuse them, and names of releases that cannot name a Service."""
    reported = {change: refusal(f"--set={change}") for change in UNCOMPARED}
    assert [(c, reported[c]) for c, why in UNCOMPARED.items() if why not in reported[c]] == []
    both = refusal("--set=kafka.bootstrapServers=k,redis.url=r").splitlines()
    assert [each.partition(":")[0] for each in both[1:3]] == ["kafka.bootstrapServers", "redis.url"]
    for name in TAKEN_FOR_NO_TEXT:
        why = f"{name}: YAML takes it for another value than a text: set another"
        assert why in refusal(f"--set-string=fullnameOverride={name}")
    for release in ("9ratings", "a.b"):
        done = helm("template", release, ".")
        assert done.returncode != 0
        assert f"{release}-stream-rater: no name for a Service: set fullnameOverride" in done.stderr
        assert helm("template", release, ".", "--set=fullnameOverride=ratings").returncode == 0


TAKEN = (
    "podDisruptionBudget.maxUnavailable=50%",
    "runAsUser=null",
    "redis.url=rediss://redis",
    "jobs.verify.schedule=*/5 0-6\\,22 * jan-mar MON-FRI",
    "jobs.verify.schedule=@daily",
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
    PUBLISHED,
    f"{PUBLISHED},serve.token.existingSecret=t,serve.ingress.tlsElsewhere=true",
    f"{PUBLISHED},serve.writeToken.existingSecret=t,serve.ingress.tlsSecret=c",
    f"{GATE},serve.token.existingSecret=t,serve.httpRoute.tlsElsewhere=true",
    f"kafka.securityProtocol=SASL_SSL,kafka.sasl.mechanism=scram-sha-512,{SASL}",
    "kafka.securityProtocol=SSL,kafka.tls.certificateSecret=t,kafka.tls.certificateKey=user.crt,"
    "kafka.tls.keyKey=user.key",
    "serve.enabled=true,serve.token.existingSecret=t,serve.writeToken.existingSecret=t,"
    "serve.writeToken.key=write",
    "extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=http://gate:8080",
)


def test_is_taken() -> None:
    """Valid values at the limits are accepted."""
    done = {change: helm("template", "rater", ".", f"--set={change}") for change in TAKEN}
    assert {change: each.stderr for change, each in done.items() if each.returncode} == {}


# --- hostile and odd values -----------------------------------------------------------------------


BREAKS = {"CR": "\r", "NEL": "\x85", "LS": "\u2028", "PS": "\u2029"}
"""Characters that end a line in YAML, but not in TOML."""


def made(release: str, *options: str) -> list[Resource]:
    """The resources of a release with these values beside those of the case `secured`."""
    done = helm("template", release, ".", values_of("secured"), *options)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]


@cases("name", BREAKS)
def test_a_line_that_only_yaml_sees_is_refused(name: str, tmp_path: Path) -> None:
    """What follows such a character in ladders or settings would become part of the ConfigMap."""
    ladders, values = tmp_path / "ladders.toml", tmp_path / "values.yaml"
    ladders.write_text(f"# a title{BREAKS[name]}immutable: true\n[ladders]\n", newline="")
    reported = refusal(f"--set-file=ladders={ladders}")
    assert "ladders: a line ends with U+000D, U+0085, U+2028 or U+2029" in reported
    user = f"a{BREAKS[name]}immutable: true"
    redis = {"username": user, "existingSecret": "s"}
    values.write_text(json.dumps({"redis": redis}))
    done = helm("template", "rater", ".", f"--values={values}")
    if done.returncode:
        assert "settings: a line ends with U+000D, U+0085" in done.stderr
        return
    (found,) = (r for r in yaml.safe_load_all(done.stdout) if r and r["kind"] == "ConfigMap")
    assert tomllib.loads(found["data"]["settings.toml"])["redis_username"] == user


def test_a_ladders_file_of_windows_is_taken(tmp_path: Path) -> None:
    """Lines that end with CR LF are accepted."""
    (tmp_path / "ladders.toml").write_text("# one\r\n[ladders]\r\n", newline="")
    found = made("rater", f"--set-file=ladders={tmp_path}/ladders.toml")
    (config,) = (each for each in found if "ladders.toml" in each.get("data", {}))
    assert tomllib.loads(config["data"]["ladders.toml"]) == {"ladders": {}}


def texts_of(value: Any, at: str = "") -> dict[str, Any]:
    """All names, keys and labels of a resource that must be texts, by their place."""
    found: dict[str, Any] = {}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in parts:
        place = f"{at}.{name}"
        if isinstance(part, dict | list):
            found |= texts_of(part, place)
        elif name in TEXTS or ".labels." in place or ".matchLabels." in place:
            found[place] = part
    return found


TEXTS = frozenset(
    {"name", "key", "secretName", "topologyKey", "serviceAccountName", "priorityClassName", "host",
     "ingressClassName"}
)  # fmt: skip


def test_names_that_look_like_numbers_stay_texts() -> None:
    """This holds for releases, Secrets and their keys, and all else that has a name."""
    places = (
        "kafka.sasl.existingSecret", "kafka.sasl.passwordKey", "kafka.tls.existingSecret",
        "kafka.tls.caKey", "redis.existingSecret", "redis.passwordKey", "redis.tls.existingSecret",
        "redis.tls.caKey", "serviceAccount.name", "priorityClassName", "nameOverride",
        "serve.token.existingSecret", "serve.token.key", "serve.ingress.host",
        "serve.writeToken.existingSecret",
        "serve.ingress.tlsSecret", "serve.ingress.className", "topologySpread.keys[0]",
    )  # fmt: skip
    more = "serve.enabled=true,serve.ingress.enabled=true,keda.enabled=true"
    given = f"--set={more},fullnameOverride=ratings", "--set-string=serve.writeToken.key=0"
    for odd in ("123", "1e3", "0x1f", "true", "null"):
        options = [f"--set-string={place}={odd}" for place in places]
        for each in made(odd, *options, *given):
            for place, text in texts_of(each).items():
                assert isinstance(text, str), (each["kind"], place, text)


def test_the_version_is_a_label_whatever_the_tag_is() -> None:
    """A tag may begin or end with characters that a label must not."""
    for tag in ("_latest", "v1." + "0" * 59 + "-.x", "nightly-"):
        (pod, *_) = worker_pods("separate", f"image.tag={tag}").values()
        assert pod["spec"]["containers"][0]["image"].endswith(tag)
        for each in made("rater", f"--set=image.tag={tag}"):
            label = each["metadata"]["labels"].get("app.kubernetes.io/version", "1")
            assert len(label) <= 63 and label[0].isalnum() and label[-1].isalnum()


GROWS = {
    "StatefulSet": "-0123456789", "Deployment": "-0123456789-01234", "CronJob": "-0123456789",
}  # fmt: skip
"""By kind, what Kubernetes appends to a name for names or labels of pods."""


def test_names_are_short_enough() -> None:
    """Names fit into labels and host names, which have at most 63 characters."""
    for each in made("r" * 53, "--set=serve.enabled=true,jobs.checkpoint.enabled=true"):
        name, labels = each["metadata"]["name"], each["metadata"].get("labels", {})
        assert len(name) + len(GROWS.get(each["kind"], "")) <= 63
        assert all(len(label) <= 63 for label in labels.values())


def test_the_schema_has_the_bounds_of_the_settings() -> None:
    """A worker accepts every setting that the schema accepts."""
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["settings"]
    (found,) = msgspec.json.schema(Settings)["$defs"].values()
    meta: dict[str, Any] = found["properties"]
    for name, reported in schema["properties"].items():
        bounds = meta[re.sub("[A-Z]", lambda upper: f"_{upper[0].lower()}", name)]
        if "minimum" in bounds:
            assert reported["minimum"] >= bounds["minimum"], name
        if "maximum" in bounds:
            assert reported["maximum"] <= bounds["maximum"], name
