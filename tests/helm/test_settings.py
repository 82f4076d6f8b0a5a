"""The settings that the chart gives to workers, as the workers' own parsers read them."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.adapters.access import client_options
from stream_rater.adapters.redis.login import redis_options
from stream_rater.cli import app
from stream_rater.config.files import ladders_of_settings, read_settings
from stream_rater.config.settings import PREFIX, SECRETS, ServeSettings, Settings
from tests.helm.chart import CASES, Resource, files, of_kind, rendered, worker_pods

CONFIG, ACCESS = "/etc/stream-rater/config", "/etc/stream-rater/access"
POD = "rater-stream-rater-updater-0"


def settings_of(case: str, folder: Path, *changes: str) -> Settings:
    """The settings of a worker of this case, whose files are in a folder of this machine."""
    (folder / "config").mkdir(parents=True)
    (folder / "access").mkdir()
    for name, text in files(case, *changes).items():
        (folder / "config" / name).write_text(moved(text, folder))
    pod = next(iter(worker_pods(case, *changes).values()))
    for name in secret_files(pod):
        (folder / "access" / name).write_text(f"{name}\n")
    return read_settings(folder / "config" / "settings.toml", environment_of(pod))


def moved(text: str, folder: Path) -> str:
    return text.replace(CONFIG, f"{folder}/config").replace(ACCESS, f"{folder}/access")


def environment_of(pod: Resource) -> dict[str, str]:
    """The environment that kubelet would give to the container."""
    return {each["name"]: each.get("value", POD) for each in pod["spec"]["containers"][0]["env"]}


def secret_files(pod: Resource) -> list[str]:
    """Names of the files that come from Secrets."""
    sources = [
        source["secret"]
        for volume in pod["spec"]["volumes"]
        for source in volume.get("projected", {"sources": []})["sources"]
    ]
    return [item["path"] for secret in sources for item in secret["items"]]


def test_every_setting_can_be_set(tmp_path: Path) -> None:
    """Each setting of workers can be set by the chart. Passwords come as files."""
    cases = {"secured": ("settings.replication=2", "redis.cluster=true"), "sentinel": ()}
    usual, found = msgspec.structs.asdict(Settings()), {}
    for case, changes in cases.items():
        found[case] = msgspec.structs.asdict(settings_of(case, tmp_path / case, *changes))
    same = {name for name in usual if all(each[name] == usual[name] for each in found.values())}
    assert same == {*ServeSettings.__struct_fields__, "data", "index"}
    secrets = {case: [each[name] for name in SECRETS] for case, each in found.items()}
    assert secrets["secured"] == ["kafka-password", "redis-password", "", "", ""]
    assert secrets["sentinel"] == ["", "redis-password", "redis-sentinel-password", "", ""]


def test_the_defaults_are_settings(tmp_path: Path) -> None:
    """The instance is the pod's name, and the endpoints are reached from without."""
    assert settings_of("separate", tmp_path) == Settings(
        kafka="kafka:9092", redis="redis://redis:6379/0", http="0.0.0.0:9108",
        instance_id=POD, replication=3, session_timeout_ms=30_000,
    )  # fmt: skip


def test_a_pod_that_restarts_has_its_share_again(tmp_path: Path) -> None:
    """A pod keeps its name (static membership), and is back before its session ends."""
    for case in CASES:
        for pod in worker_pods(case).values():
            env = {each["name"]: each for each in pod["spec"]["containers"][0]["env"]}
            source = env[f"{PREFIX}INSTANCE_ID"]["valueFrom"]
            assert source == {"fieldRef": {"fieldPath": "metadata.name"}}
            away_s = 2 * pod["spec"]["terminationGracePeriodSeconds"]
        settings = settings_of(case, tmp_path / case)
        assert settings.instance_id == POD
        assert settings.session_timeout_ms >= 1000 * away_s


def test_a_clients_certificate_may_have_a_secret_of_its_own() -> None:
    """As with Strimzi, whose Secret of a user has no authority for the brokers."""
    tls = "existingSecret=ca,certificateSecret=user,certificateKey=user.crt,keyKey=user.key"
    changes = [f"kafka.tls.{each}" for each in tls.split(",")]
    (pod, *_) = worker_pods("observed", *changes).values()
    sources = [s["secret"] for v in pod["spec"]["volumes"][1:2] for s in v["projected"]["sources"]]
    assert {(s["name"], *s["items"][0].values()) for s in sources} == {
        ("ca", "ca.crt", "kafka-ca.pem"), ("user", "user.crt", "kafka-certificate.pem"),
        ("user", "user.key", "kafka-key.pem"),
    }  # fmt: skip
    lines = files("observed", *changes)["settings.toml"].splitlines()
    assert sum(line.startswith("kafka_ssl_") for line in lines) == len(sources) == 3


def test_options_of_librdkafka_are_strings(tmp_path: Path) -> None:
    """Numbers become strings, too, and large ones have no exponent."""
    assert settings_of("secured", tmp_path).kafka_options == {
        "client.rack": "zone-a",
        "queued.min.messages": "50000",
        "queued.max.messages.kbytes": "1048576",
    }


def test_the_clients_take_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is incomplete would be refused here; ladders, too, are parsed."""
    (tmp_path / "signer.py").write_text("def token(_): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    for case in CASES:
        settings = settings_of(case, tmp_path / case)
        assert client_options(settings)["bootstrap.servers"] == settings.kafka
        redis_options(settings, settings.redis)
        assert ladders_of_settings(settings).ladders


def test_tls_by_the_systems_authorities_names_no_file(tmp_path: Path) -> None:
    """TLS with the system's authorities names and mounts no file."""
    settings = settings_of("observed", tmp_path)
    assert (settings.kafka_security_protocol, settings.kafka_ssl_ca) == ("ssl", "")
    assert list((tmp_path / "access").iterdir()) == []


def test_the_command_is_one(tmp_path: Path) -> None:
    """Each component runs its role, by the options that the command has."""
    for case in CASES:
        (tmp_path / "config").mkdir(exist_ok=True)
        (tmp_path / "config" / "settings.toml").touch()
        for component, pod in worker_pods(case).items():
            container = pod["spec"]["containers"][0]
            traced = ["opentelemetry-instrument"] if case == "secured" else []
            assert container["command"] == [*traced, "stream-rater"]
            names = [each["name"] for each in pod["spec"]["containers"][1:]]
            assert names == (["proxy"] if case == "cloud" else [])
            name, *arguments = container["args"]
            arguments = [moved(each, tmp_path) for each in arguments]
            context = app.main.commands[name].make_context(name, arguments)
            assert context.params["role"] == component


def test_every_variable_of_ours_is_a_setting() -> None:
    """No STREAM_RATER_ variable is misspelt."""
    for case in CASES:
        named = set(re.findall(rf"\b{PREFIX}([A-Z_]+)", rendered(case)))
        assert {"INSTANCE_ID"} <= named
        assert {name.lower() for name in named} <= set(Settings.__struct_fields__)


def test_every_file_that_a_setting_names_is_mounted() -> None:
    """Files are mounted where settings name them, and no unused Secret is mounted."""
    for case in ("secured", "sentinel"):
        settings = tomllib.loads(files(case)["settings.toml"])
        named = {each for each in settings.values() if str(each).startswith(f"{ACCESS}/")}
        for pod in worker_pods(case).values():
            assert {f"{ACCESS}/{name}" for name in secret_files(pod)} == named
            mounts = {
                m["name"]: m["mountPath"] for m in pod["spec"]["containers"][0]["volumeMounts"]
            }
            assert mounts == {"config": CONFIG, "access": ACCESS, "tmp": "/tmp"}


def test_config_maps_hold_no_secret() -> None:
    """A setting whose name hints at a secret has the name of a file, or of a function."""
    for case in CASES:
        for each in of_kind("ConfigMap", case)[:1]:
            for line in each["data"]["settings.toml"].splitlines():
                name, _, value = line.partition(" = ")
                if re.search("password|secret|token|_key$", name) and name != "kafka_token":
                    assert value.startswith(f'"{ACCESS}/'), line


def checksum(*changes: str) -> Any:
    pod = worker_pods("separate", *changes)["updater"]
    return pod["metadata"]["annotations"]["checksum/config"]


def test_pods_restart_when_what_they_read_has_changed() -> None:
    """They restart only then."""
    before = checksum()
    assert checksum("settings.wavePlayers=10") != before
    assert checksum("ladders=[ladders]") != before
    assert checksum("kafka.options.client\\.rack=b") != before
    assert checksum("estimator.replicas=4", "serviceMonitor.enabled=true") == before
