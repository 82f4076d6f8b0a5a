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
    "networkPolicy.to.dns[0].podselector.a=b": "invalid propertyName 'podselector'",
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
    """The schema refuses the value and names its place."""
    taken = []
    for change, why in WRONG.items():
        reported = refusal(f"--set={change}")
        if "values don't meet the specifications" not in reported or why not in reported:
            taken.append((change, reported))
    assert taken == []


PUBLISHED = "--set=serve.enabled=true,serve.ingress.enabled=true,serve.ingress.host=a.example"

UNCOMPARED = {
    f"{PUBLISHED},serve.token.existingSecret=t":
        "serve.ingress.tlsSecret: none, so whoever is on the way reads the tokens of requests",
    f"{PUBLISHED},serve.writeToken.existingSecret=t": "serve.ingress.tlsSecret: none",
    "--set=serve.enabled=true,serve.token.existingSecret=t,serve.writeToken.existingSecret=t":
        "serve.writeToken: the same as serve.token",
    "--set=keda.enabled=true,keda.lagThreshold=3":
        "keda.lagThreshold: less than 4: transaction markers alone look like that lag",
    "--set=serviceMonitor.enabled=true,serviceMonitor.scrapeTimeout=60s":
        "serviceMonitor.scrapeTimeout: 60s is longer than the interval, 15s",
} | {
    f"--set-string=fullnameOverride={name}":
        f"{name}: YAML takes it for another value than a text: set another"
    for name in ("true", "null", "off")
}  # fmt: skip
"""Values that a schema cannot compare, or not refuse in a helpful way: tokens over plain HTTP, two
equal tokens, shards, intervals that Prometheus refuses, names that Kubernetes refuses."""


def test_what_no_schema_can_compare_is_refused() -> None:
    """Templates refuse them, and names of releases that cannot name a Service."""
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
    PUBLISHED.removeprefix("--set="),
    f"{PUBLISHED},serve.token.existingSecret=t,serve.ingress.tlsElsewhere=true"[6:],
    f"{PUBLISHED},serve.writeToken.existingSecret=t,serve.ingress.tlsSecret=c"[6:],
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


GROWS = {"StatefulSet": "-0123456789", "Deployment": "-0123456789-01234"}
"""By kind, what Kubernetes appends to a name for names or labels of pods."""


def test_names_are_short_enough() -> None:
    """Names fit into labels and host names, which have at most 63 characters."""
    for each in made("r" * 53, "--set=serve.enabled=true"):
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
