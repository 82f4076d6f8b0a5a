"""`make kubernetes`: build what is missing, run the cluster in namespaces of its own, and look at
what it left behind. Needs root.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from cluster import binaries, images
from cluster.init import WRITTEN, hierarchies
from cluster.node import CGROUP
from containers import engine
from containers.report import Failed, Report
from local import go_tools
from local.system import Package, ensure_packages
from local.tools import ROOT, LocalServerError

STATE: Final = binaries.BINARIES / "state"
APART: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
LONGEST_S: Final = 3600.0
NEEDED: Final = {
    "containerd": "containerd", "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "iptables", "ipset": "ipset", "conntrack": "conntrack", "iproute2": "ip",
}  # fmt: skip
"""Packages of Debian, with a program or file by which each is found."""


def played(report: Report) -> None:
    """Build the programs and images, run the cluster, and check what it leaves."""
    if os.geteuid() != 0:
        raise LocalServerError("a cluster needs root: for namespaces, mounts and control groups")
    packages = [
        Package(name, name, partial(_installed, program), service="containerd")
        for name, program in NEEDED.items()
    ]
    ensure_packages(packages, report.say)
    go_tools.ensure_tools(report.say, [go_tools.HELM], needed=True)
    if not report.check("programs", lambda: binaries.ensure(report.say)):
        return
    report.check("images", lambda: images.ensure(engine.find(report.say), report.say))
    before = traces()
    clear()
    STATE.mkdir(parents=True)
    rows = STATE / "rows.json"
    command = [*APART, sys.executable, "-m", "cluster.init", str(STATE)]
    command += [sys.executable, "-m", "cluster.inside", str(STATE)]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'deploy'}:{ROOT / 'deploy' / 'tools'}",
    }
    apart = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        code = apart.wait(LONGEST_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        apart.send_signal(signal.SIGKILL)
        code = apart.wait()
    if rows.exists():
        outcome = json.loads(rows.read_text(encoding="utf-8"))
        report.rows += [tuple(row) for row in outcome["rows"]]
        report.failed += outcome["failed"]
    elif code:
        report.failed += 1
    keep_logs()
    report.check("nothing left", lambda: nothing_left(before))


def _installed(program: str) -> bool:
    return shutil.which(program) is not None


def keep_logs() -> None:
    """Keep the logs of this run, in place of those of the run before."""
    kept = binaries.BINARIES / "logs"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    for log in STATE.glob("*.log"):
        shutil.copy(log, kept)


def clear() -> None:
    """Remove the files of a run, and its control groups."""
    for folder in hierarchies():
        own = folder / CGROUP.lstrip("/")
        for group in sorted(own.rglob("*/"), reverse=True) if own.is_dir() else ():
            group.rmdir()
        if own.is_dir():
            own.rmdir()
    shutil.rmtree(STATE, ignore_errors=True)


def traces() -> dict[str, set[str]]:
    """What a cluster may leave on this machine now: processes, mounts, interfaces, files."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return {
        "processes": set(ours()),
        "mounts": {line.split()[4] for line in mounts},
        "interfaces": {path.name for path in Path("/sys/class/net").iterdir()},
        "files": {str(p) for name in WRITTEN for p in Path("/", name).glob("*/*")},
        "of /run": {str(path) for path in Path("/run").glob("*")},
    }


def ours() -> list[str]:
    """Processes that name the folder of a run, or run a program of the cluster."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(STATE) in command or str(binaries.BINARIES) in command:
            found.append(f"{folder.name} {command[:60]}")
    return found


def nothing_left(before: dict[str, set[str]]) -> str:
    """Compare with what was there before. Raises Failed with what is new."""
    clear()
    left = {kind: now - before[kind] for kind, now in traces().items()}
    for folder in hierarchies():
        if (folder / CGROUP.lstrip("/")).exists():
            left.setdefault("control groups", set()).add(str(folder))
    kinds = [f"{kind}: {', '.join(sorted(new))}" for kind, new in left.items() if new]
    if kinds:
        raise Failed("; ".join(kinds)[:400])
    return "no process, mount, interface, control group or file, but for programs and logs kept"
