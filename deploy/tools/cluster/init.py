"""The first process of the cluster's namespaces: gives it a network and a place for its files,
starts a command there, and reaps the processes that others leave behind.

    python -m cluster.init STATE COMMAND...

Whatever is written to /etc, /opt or /var goes to STATE. When this process ends, the
kernel ends all others of the namespace.
"""

import os
import subprocess
import sys
from pathlib import Path

from cluster.node import ADDRESS, CGROUP

CONTROLLERS = Path("/sys/fs/cgroup")
WRITTEN = ("etc", "opt", "var")
HOSTS = {"kafka.servers": "10.96.0.20", "redis.servers": "10.96.0.21"}
"""Services whose names the season's programs need, which run outside of pods."""
WISHES = {
    "kernel/panic": 10, "kernel/panic_on_oops": 1, "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000, "vm/overcommit_memory": 1, "vm/panic_on_oom": 0,
}  # fmt: skip
"""Kernel settings that kubelet would change for the whole machine. It finds them set already."""


def run(*command: str) -> None:
    """Run a command. Raises CalledProcessError if it fails."""
    subprocess.run(command, check=True)


def lay_mounts(state: Path) -> None:
    """Mount a /run of our own, and overlays (copy-on-write) over other folders that are written."""
    run("mount", "--make-rprivate", "/")
    for name in WRITTEN:
        upper, work = state / "written" / name, state / "work" / name
        upper.mkdir(parents=True)
        work.mkdir(parents=True)
        options = f"lowerdir=/{name},upperdir={upper},workdir={work}"
        run("mount", "-t", "overlay", "overlay", "-o", options, f"/{name}")
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for name, value in WISHES.items():
        shown = Path("/run") / name.replace("/", ".")
        shown.write_text(f"{value}\n", encoding="ascii")
        run("mount", "--bind", str(shown), f"/proc/sys/{name}")
    run("mount", "--make-rshared", "/")
    with Path("/etc/hosts").open("a", encoding="utf-8") as hosts:
        hosts.writelines(f"{address} {name}\n" for name, address in HOSTS.items())


def lay_network() -> None:
    """Give the node an address, and a route to those of Services, which kube-proxy rewrites."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node1")
    run("ip", "link", "set", "node1", "up")
    run("ip", "link", "set", "node0", "up")
    run("ip", "address", "add", f"{ADDRESS}/24", "dev", "node0")
    run("ip", "route", "add", "default", "dev", "node0")
    for name in ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables"):
        Path("/proc/sys/net", name).write_text("1", encoding="ascii")


def lay_groups() -> None:
    """Make a control group of our own in every hierarchy."""
    for folder in hierarchies():
        own = folder / CGROUP.lstrip("/")
        own.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (own / name).exists() and not (own / name).read_text().strip():
                (own / name).write_text((folder / name).read_text())


def hierarchies() -> list[Path]:
    """The roots of control groups: a folder for each hierarchy in version 1, one in version 2."""
    if (CONTROLLERS / "cgroup.procs").exists():
        return [CONTROLLERS]
    found = [p for p in CONTROLLERS.iterdir() if not p.is_symlink()]
    return sorted(p for p in found if (p / "cgroup.procs").exists())


def main() -> int:
    """Set up, start the command, and wait for all processes. Returns its exit code."""
    lay_mounts(Path(sys.argv[1]))
    lay_network()
    lay_groups()
    started = subprocess.Popen(sys.argv[2:]).pid
    while True:
        ended, status = os.wait()
        if ended == started:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
