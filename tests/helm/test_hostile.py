"""What the chart makes of values that are meant badly, or only odd: texts stay texts, and nothing
of them becomes a part of a resource."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from stream_rater.config.settings import Settings
from tests.helm.chart import CHART, Resource, helm, refusal, values_of, worker_pods

BREAKS = {"CR": "\r", "NEL": "\x85", "LS": "\u2028", "PS": "\u2029"}
"""What YAML takes for the end of a line, and TOML does not."""


def made(release: str, *options: str) -> list[Resource]:
    """The resources of a release with these values beside those of the case `secured`."""
    done = helm("template", release, ".", values_of("secured"), *options)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]


@pytest.mark.parametrize("name", BREAKS)
def test_a_line_that_only_yaml_sees_is_refused(name: str, tmp_path: Path) -> None:
    """In the ladders file, or in a setting: it would go on outside of its file, as a part of the
    ConfigMap."""
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
    """Its lines end with two characters."""
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
    """Of the release, of Secrets and their keys, and of all else that has a name."""
    places = (
        "kafka.sasl.existingSecret", "kafka.sasl.passwordKey", "kafka.tls.existingSecret",
        "kafka.tls.caKey", "redis.existingSecret", "redis.passwordKey", "redis.tls.existingSecret",
        "redis.tls.caKey", "serviceAccount.name", "priorityClassName", "nameOverride",
        "serve.token.existingSecret", "serve.token.key", "serve.ingress.host",
        "serve.writeToken.existingSecret", "serve.writeToken.key",
        "serve.ingress.tlsSecret", "serve.ingress.className", "topologySpread.keys[0]",
    )  # fmt: skip
    more = "serve.enabled=true,serve.ingress.enabled=true,keda.enabled=true"
    for odd in ("123", "1e3", "0x1f", "true", "null"):
        options = [f"--set-string={place}={odd}" for place in places]
        found = made(odd, *options, f"--set={more}", "--set=fullnameOverride=ratings")
        for each in found:
            for place, text in texts_of(each).items():
                assert isinstance(text, str), (each["kind"], place, text)


def test_the_version_is_a_label_whatever_the_tag_is() -> None:
    """A tag may end, or begin, as no label may."""
    for tag in ("_latest", "v1." + "0" * 59 + "-.x", "nightly-"):
        (pod, *_) = worker_pods("separate", f"image.tag={tag}").values()
        assert pod["spec"]["containers"][0]["image"].endswith(tag)
        for each in made("rater", f"--set=image.tag={tag}"):
            label = each["metadata"]["labels"].get("app.kubernetes.io/version", "1")
            assert len(label) <= 63 and label[0].isalnum() and label[-1].isalnum()


GROWS = {"StatefulSet": "-0123456789", "Deployment": "-0123456789-01234"}
"""What Kubernetes adds to the name for a pod's name, or for a label of the pod."""


def test_names_are_short_enough() -> None:
    """For labels and host names, which have at most 63 characters."""
    for each in made("r" * 53, "--set=serve.enabled=true"):
        name, labels = each["metadata"]["name"], each["metadata"].get("labels", {})
        assert len(name) + len(GROWS.get(each["kind"], "")) <= 63
        assert all(len(label) <= 63 for label in labels.values())


def test_the_schema_has_the_bounds_of_the_settings() -> None:
    """What it takes, a worker takes at its start."""
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["settings"]
    meta = schemas_of_settings()
    for name, reported in schema["properties"].items():
        bounds = meta[re.sub("[A-Z]", lambda upper: f"_{upper[0].lower()}", name)]
        if "minimum" in bounds:
            assert reported["minimum"] >= bounds["minimum"], name
        if "maximum" in bounds:
            assert reported["maximum"] <= bounds["maximum"], name


def schemas_of_settings() -> dict[str, Any]:
    """By setting, its JSON schema."""
    (found,) = msgspec.json.schema(Settings)["$defs"].values()
    properties: dict[str, Any] = found["properties"]
    return properties


WARNED = {
    "serve.enabled=true,serve.ingress.enabled=true,serve.ingress.host=h,"
    "serve.token.existingSecret=t": "anybody on the way can read the token",
    "serve.enabled=true,serve.ingress.enabled=true,serve.ingress.host=h,"
    "serve.writeToken.existingSecret=t": "anybody on the way can read the token",
    r"kafka.options.enable\.ssl\.certificate\.verification=false": "is taken for Kafka",
    r"kafka.options.ssl\.endpoint\.identification\.algorithm=none": "is taken for Kafka",
}


def test_what_makes_a_secret_readable_is_warned_of() -> None:
    """In the notes, which Helm prints after an install."""
    usual = helm("install", "rater", ".", "--dry-run=client").stdout
    for change, warning in WARNED.items():
        done = helm("install", "rater", ".", "--dry-run=client", f"--set={change}")
        assert warning in done.stdout, done.stderr
        assert warning not in usual
