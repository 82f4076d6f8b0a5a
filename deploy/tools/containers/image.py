"""`make image`: build deploy/Dockerfile, run what was built as a cluster would, and look at it."""

import json
import os
import re
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from containers import base, engine, pip_settings
from containers.engine import Engine
from containers.report import Failed, Report
from local.tools import ROOT, LocalServerError

DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
LOCK: Final = ROOT / "deploy" / "image.lock"
NAME: Final = "stream-rater"
MOST_BYTES: Final = 350_000_000
WARM_S: Final = 1.0
"""The longest that a ladder's first rounds may take with the image's compiled kernels."""
USER: Final = 65532
OF_THE_LAB: Final = {"matplotlib", "pytest", "scipy"}
"""Packages of the extra `lab`, and that of `stream_rater.testing`: the image does not have them."""
LOADED, SAVED = "data loaded from", "data saved to"
"""What numba says of its cache under NUMBA_DEBUG_CACHE."""
CONFINED: Final = (
    "run", "--rm", "--read-only", "--tmpfs=/tmp", "--network=none", "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
)  # fmt: skip
OCI: Final = "org.opencontainers.image"
LABELS: Final = tuple(
    f"{OCI}.{each}"
    for each in (
        "title", "description", "version", "licenses", "created", "base.name"
    )
)  # fmt: skip
URN: Final = "urn:stream-rater"
PAPERS: Final = ROOT / "build" / "image"
"""Where the bill of materials and the provenance are written, which a release signs."""
BILL: Final = "print(open('/opt/stream-rater/sbom.cdx.json').read())"
SITE: Final = ROOT / "deploy" / "tools" / "zensical.toml"
BUILD_S: Final = 7200.0
"""The longest that a build may take: the kernels of all systems on a busy machine."""
SHELLS: Final = ("/bin/sh", "/bin/bash", "/bin/dash", "/usr/bin/perl", "/usr/bin/apt-get")

WRITES: Final = """
import os, pathlib, sys
print(os.getuid(), os.getgid())
for each in ("/", "/opt/stream-rater", "/etc", "/usr/lib", "/var/lib"):
    try:
        pathlib.Path(each, "written").write_text("x")
    except OSError:
        continue
    sys.exit(f"{each} can be written")
"""
IMPORTS: Final = """
import importlib, pkgutil, stream_rater
names = [m.name for m in pkgutil.walk_packages(stream_rater.__path__, "stream_rater.")]
lacking = {}
for name in names:
    if not name.endswith("__main__"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            lacking[name] = error.name or str(error)
print(len(names), ",".join(sorted(set(lacking.values()))) or "-")
"""
COMMANDS: Final = """
import os, sys, traceback
from stream_rater.cli.app import main
words = {
    "backup": "no.db b.db", "convert": "/etc/passwd o.jsonl",
    "correct void": "l r", "demo": "--rounds 0", "erase": "x --to v2.",
    "evaluate": "/etc/passwd --config /etc/passwd", "evidence": "/nowhere",
    "move": "no.db", "predict": "l a b", "rate": "/etc/passwd",
    "reset": "x --ladder l", "season-standings": "l 1", "seed": "/etc/passwd --ladder l",
    "standalone": "/etc/passwd/x.db", "submit": "/etc/passwd", "tune": "/etc/passwd --system elo",
}
def run(arguments):
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 99
    try:
        main(arguments, "stream-rater")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 98
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
def named(group, before=()):
    for name, each in group.commands.items():
        yield (*before, name), each
        yield from named(each, (*before, name)) if hasattr(each, "commands") else ()
os.chdir("/tmp")
os.environ["STREAM_RATER_PARTITIONS"] = "0"
found, wrong = dict(named(main)), []
for name, command in found.items():
    codes = [run([*name, "--help"])]
    if not hasattr(command, "commands"):
        codes.append(run([*name, *words.get(" ".join(name), "").split()]))
    if codes[0] or not {*codes[1:]} <= {1, 2}:
        wrong.append(f"{' '.join(name)} ends with {codes}")
print(len(found), ", ".join(wrong) or "-", flush=True)
"""
"""A program that runs each command twice: for its help, and with arguments that it must refuse
before it asks a server. Its last line on standard output has the number of commands, and those
that went wrong."""
HOLDS: Final = """
import importlib.metadata, json, pathlib
bill = json.loads(pathlib.Path("/opt/stream-rater/sbom.cdx.json").read_bytes())
print(json.dumps({
    "there": {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()},
    "bill": {each["name"]: each.get("version", "") for each in bill["components"]},
    "system": [p.name for p in pathlib.Path("/var/lib/dpkg/status.d").glob("*")],
}))
"""


def played(report: Report) -> None:
    """Build the image and run all checks. $BASE names another image to build from."""
    build(engine.find(report.say), NAME, report, os.environ.get("BASE")).check()


def base_of(dockerfile: str) -> str:
    """The image that a Dockerfile starts from by default."""
    (found,) = re.findall(r"^ARG BASE=(\S+)$", dockerfile, re.MULTILINE)
    return str(found)


def source_labels() -> dict[str, str]:
    """What labels say of the sources: their commit, its time or $SOURCE_DATE_EPOCH, and the
    addresses of the repository and the documents, where these are public."""
    when_s = int(
        os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or time.time()
    )
    documents = tomllib.loads(SITE.read_text(encoding="utf-8"))["project"]["site_url"]
    found = {
        "created": rfc3339(when_s),
        "revision": git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"),
        "source": address(git("config", "--get", "remote.origin.url")),
        "documentation": address(documents),
    }
    return {f"{OCI}.{name}": value for name, value in found.items() if value}


def rfc3339(when_s: float) -> str:
    """A time as labels and provenance spell it, without parts of a second."""
    return datetime.fromtimestamp(int(when_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def address(text: str) -> str:
    """An address that leads somewhere for everybody, else nothing."""
    return text if re.match(r"https://(?![^/]*\.example/)", text) else ""


def git(*arguments: str) -> str:
    """What git prints; nothing where there is no repository."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def build(at: Engine, name: str, report: Report, base_name: str | None = None) -> "Image":
    """The image, tagged as the newest and with its version."""
    wanted = base_name or base_of(DOCKERFILE.read_text(encoding="utf-8"))
    found: list[base.Base] = []

    def had() -> str:
        found.append(base.ensure(at, wanted, report.say))
        return found[0].origin

    if not report.check("base", had):
        raise LocalServerError(f"no {wanted}")
    labels = source_labels() | {f"{OCI}.base.name": found[0].name}
    if found[0].digest:
        labels[f"{OCI}.base.digest"] = found[0].digest
    began_s = time.time()
    report.say("building deploy/Dockerfile; the kernels take some minutes")
    settings = pip_settings.current()
    with tempfile.TemporaryDirectory(prefix="stream-rater-image-") as folder:
        given = Path(folder, "pip.conf")
        given.write_text(pip_settings.as_file(settings), encoding="utf-8")
        lent = [(given, "/etc/pip.conf")]
        if authorities := pip_settings.certificates(settings, os.environ):
            lent.append((authorities.resolve(), pip_settings.CERTIFICATES))
        more = (*at.building, *engine.mounts(lent)) if at.name == "podman" else ()
        at.run(
            "build", *more, *(f"--label={each}={value}" for each, value in labels.items()),
            f"--build-arg=BASE={found[0].reference}", "--network=host", f"--file={DOCKERFILE}",
            f"--tag={name}", str(ROOT), timeout_s=BUILD_S,
        )  # fmt: skip
    built = Image(at, name, report)
    PAPERS.mkdir(parents=True, exist_ok=True)
    paper = json.dumps(provenance(built.labels, began_s, time.time()), indent=2)
    (PAPERS / "provenance.json").write_text(paper, encoding="utf-8")
    (PAPERS / "sbom.cdx.json").write_text(built.python("-c", BILL), encoding="utf-8")
    if absent := labels.items() - built.labels.items():
        raise LocalServerError(f"labels are not as given: {absent}")
    at.run("tag", name, f"{name}:{built.labels[f'{OCI}.version']}")
    took_s = time.time() - began_s
    report.rows.append(("built", f"{at.name}, {len(built.layers)} layers", took_s))
    return built


def provenance(labels: Mapping[str, str], began_s: float, ended_s: float) -> dict[str, Any]:
    """How an image was built, as the predicate of SLSA's provenance 1.0. $BUILDER_ID names the
    builder; a build by hand has none that others could trust."""
    label = {name.removeprefix(f"{OCI}."): value for name, value in labels.items()}
    source = f"git+{label.get('source', URN)}@{label.get('revision', '')}"
    made_of = [{"uri": source, "digest": {"gitCommit": label.get("revision", "")}}]
    if "base.digest" in label:
        algorithm, _, digest = label["base.digest"].partition(":")
        made_of.append({"uri": f"oci://{label['base.name']}", "digest": {algorithm: digest}})
    return {
        "buildDefinition": {
            "buildType": f"{URN}:make-image:1",
            "externalParameters": {"dockerfile": "deploy/Dockerfile", "base": label["base.name"]},
            "resolvedDependencies": made_of,
        },
        "runDetails": {
            "builder": {"id": os.environ.get("BUILDER_ID", f"{URN}:by-hand")},
            "metadata": {"startedOn": rfc3339(began_s), "finishedOn": rfc3339(ended_s)},
        },
    }


class Image:
    """An image that was built, and its checks."""

    def __init__(self, at: Engine, name: str, report: Report) -> None:
        self._at = at
        self._name = name
        self._report = report
        (self.inspected,) = json.loads(at.run("image", "inspect", name))

    @property
    def layers(self) -> list[str]:
        """The hashes of the image's layers."""
        found: list[str] = self.inspected["RootFS"]["Layers"]
        return found

    @property
    def labels(self) -> dict[str, str]:
        """The image's labels."""
        found: dict[str, str] = self.inspected["Config"]["Labels"]
        return found

    def check(self) -> None:
        """Run all checks."""
        checks: tuple[tuple[str, Callable[[], str]], ...] = (
            ("size", self._size),
            ("labels", self._labels),
            ("not root, nothing to write", self._writes),
            ("no shell", self._shells),
            ("kernels", self._kernels),
            ("modules", self._imports),
            ("commands", self._commands),
            ("what is in it", self._holds),
        )
        for name, what in checks:
            self._report.check(name, what)

    def python(self, *arguments: str, **variables: str) -> str:
        """What Python prints in a container that runs as in the chart."""
        given = [f"--env={name}={value}" for name, value in variables.items()]
        command = (*CONFINED, *given, "--entrypoint=python", self._name, *arguments)
        done = self._at.tried(*command)
        if done.returncode != 0:
            raise Failed((done.stderr or done.stdout).strip()[-300:])
        return done.stdout + done.stderr

    def _size(self) -> str:
        size: int = self.inspected["Size"]
        if size > MOST_BYTES:
            raise Failed(f"{size / 1e6:.0f} MB are more than {MOST_BYTES / 1e6:.0f}")
        return f"{size / 1e6:.0f} MB (at most {MOST_BYTES / 1e6:.0f})"

    def _labels(self) -> str:
        if absent := [each for each in LABELS if not self.labels.get(each)]:
            raise Failed(f"no {', '.join(absent)}")
        shown = sorted(name for name in self.labels if name.startswith(OCI))
        return ", ".join(f"{n.removeprefix(OCI + '.')} {self.labels[n]}" for n in shown)

    def _writes(self) -> str:
        output = self.python("-c", WRITES).split()
        if output != [str(USER)] * 2:
            raise Failed(f"user and group {output}")
        return f"user {USER}; read-only, no capabilities"

    def _shells(self) -> str:
        output = self.python("-c", f"import os; print([p for p in {SHELLS} if os.path.exists(p)])")
        if output.strip() != "[]":
            raise Failed(f"it has {output.strip()}")
        return "none, and no package manager"

    def _kernels(self) -> str:
        warm = ("-m", "stream_rater.runtime.selfcheck", "--all")
        output = self.python(*warm, NUMBA_DEBUG_CACHE="1")
        if LOADED not in output or SAVED in output:
            raise Failed("a kernel is compiled at the start")
        took = {n: float(s) for n, s in re.findall(r"^([a-z-]+): ([\d.]+) s$", output, re.M)}
        if not took or max(took.values()) > WARM_S:
            raise Failed(f"until the first rounds are rated: {took}")
        loaded = f"{output.count(LOADED)} loaded, none compiled"
        return f"{loaded}; {len(took)} systems warm, the bits right"

    def _imports(self) -> str:
        """All modules can be imported, except for those that only a laboratory needs."""
        count, lacking = self.python("-c", IMPORTS).split()
        if more := set(lacking.split(",")) - OF_THE_LAB - {"-"}:
            raise Failed(f"not to be imported: {', '.join(sorted(more))}")
        left = "" if lacking == "-" else f", but for those that need {lacking}"
        return f"{count} can be imported{left}"

    def _commands(self) -> str:
        """Each command shows its help, and refuses wrong arguments."""
        count, wrong = commands_in(self.python("-c", COMMANDS))
        if wrong:
            raise Failed(wrong)
        return f"{count} show their help and refuse what is wrong"

    def _holds(self) -> str:
        listed: dict[str, Any] = json.loads(self.python("-c", HOLDS))
        locked = dict(
            re.findall(r"^([\w.-]+)==([^\s;\\]+)", LOCK.read_text(encoding="utf-8"), re.M)
        )
        there = {plain(name): version for name, version in listed["there"].items()}
        other = {n: v for n, v in there.items() if n != NAME and locked.get(n) != v}
        if other or NAME not in there:
            raise Failed(f"not as locked: {other}")
        if missing := there.keys() - {plain(each) for each in listed["bill"]} - {NAME}:
            raise Failed(f"not in the bill of materials: {missing}")
        return (
            f"{len(there)} packages as locked, all in the SBOM; {len(listed['system'])} of Debian's"
        )


def commands_in(output: str) -> tuple[int, str]:
    """Read the output of COMMANDS, which may end with the refusals: how many there are, and which
    went wrong."""
    count, wrong = re.findall(r"^(\d+) (.*)$", output, re.MULTILINE)[-1]
    return int(count), wrong.strip("-")


def plain(name: str) -> str:
    """A package's name as locks spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()
