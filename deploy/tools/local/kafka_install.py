"""Installs Kafka's jars through Maven and prepares what makes a node start quickly."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from local.kafka_node import (
    CLASS_ARCHIVE,
    FORMATTED,
    LIBS,
    java_command,
    node_launch,
    random_id,
    render_properties,
)
from local.processes import Server, free_port
from local.stamps import Stamp, digest
from local.system import JAVA, MAVEN, Package
from local.tools import (
    KAFKA_CHOSEN,
    KAFKA_HOME,
    KAFKA_VARIABLE,
    LocalServerError,
    find_java,
)

POM: Final = Path(__file__).with_name("pom.xml")
_ARCHIVE_TIMEOUT_S: Final = 120.0
_JARS: Final = Stamp(KAFKA_HOME / "stamps" / "jars")


def needed_packages() -> list[Package]:
    """The system's packages that ensure_kafka needs."""
    return [JAVA] if _have_jars() else [JAVA, MAVEN]


def _have_jars() -> bool:
    return _JARS.is_current(digest(POM))


def ensure_kafka(say: Callable[[str], None]) -> None:
    """Install Kafka's jars, and make the formatted template and the class archive."""
    if not _have_jars():
        say(f"installing Kafka {KAFKA_CHOSEN} with Maven")
        copy_jars()
        _JARS.write(digest(POM))
    java = find_java()
    assert java is not None, "the packages come first"
    java_release = java.resolve().parent.parent / "release"
    stamp = Stamp(KAFKA_HOME / "stamps" / "prepared")
    wanted = digest(POM, str(KAFKA_HOME), str(java.resolve()), java_release)
    if not stamp.is_current(wanted):
        say("preparing Kafka to start quickly")
        make_template(java)
        make_class_archive(java, say)
        stamp.write(wanted)


def copy_jars() -> None:
    """Fill LIBS by Maven, with checksums enforced and the user's own settings and mirrors."""
    shutil.rmtree(LIBS, ignore_errors=True)
    done = subprocess.run(
        [
            *("mvn", "--batch-mode", "--quiet", "--strict-checksums", f"--file={POM}"),
            "org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies",
            *("-DincludeScope=runtime", f"-DoutputDirectory={LIBS}"),
            f"-Dkafka.version={KAFKA_CHOSEN}",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0 or not any(LIBS.glob("kafka_*.jar")):
        plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
        found = re.search(r"\[ERROR\] (.*?)(?: -> \[Help 1\])?$", plain, re.MULTILINE)
        reason = found[1] if found else f"exit code {done.returncode}"
        raise LocalServerError(
            f"Maven could not fetch Kafka {KAFKA_CHOSEN}: {reason}; "
            f"run it again, or set {KAFKA_VARIABLE} to a Kafka that runs"
        )


def make_template(java: Path) -> None:
    """Format an empty log directory with Kafka's StorageTool; nodes start from copies of it."""
    fresh = KAFKA_HOME / "formatted.new"
    for old in (fresh, FORMATTED):
        shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as folder:
        configuration = Path(folder, "kafka.properties")
        # The ports only have to be valid: nothing listens on them.
        text = render_properties(fresh, free_port(), free_port(), {})
        configuration.write_text(text, encoding="utf-8")
        arguments = ("format", "--cluster-id", random_id(), "--config", str(configuration))
        done = subprocess.run(
            java_command(java, "kafka.tools.StorageTool", *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()
        raise LocalServerError(f"Kafka's StorageTool could not format a directory: {reason[-1]}")
    (fresh / "meta.properties").unlink()  # each node writes its own ids
    fresh.rename(FORMATTED)


def make_class_archive(java: Path, say: Callable[[str], None]) -> None:
    """Run a node once and let the JVM archive the classes it loaded.

    If a JVM cannot do this, nodes start more slowly, and the set-up still succeeds.
    """
    CLASS_ARCHIVE.unlink(missing_ok=True)
    fresh = CLASS_ARCHIVE.with_suffix(".new")
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as folder:
        flags = (f"-XX:ArchiveClassesAtExit={fresh}",)
        launch = node_launch(java, Path(folder), free_port(), jvm_flags=flags)
        Server(launch).start().stop(_ARCHIVE_TIMEOUT_S)
    if fresh.exists():
        fresh.rename(CLASS_ARCHIVE)
    else:
        say("this Java makes no class archive: Kafka will start a little slower")
