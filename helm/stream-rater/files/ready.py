"""What `helm test` runs: every worker is ready, and what is to be owned has owners.

    python -c "$(cat ready.py)" SERVICE:PORT PODS [SECONDS]

The service is headless: its name has an address for every pod. Prints what is missing; exit code 1
if it still is when the time is over.
"""

import re
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

OWNED = re.compile(r'^stream_rater_owned\{role="(\w+)"\} ([0-9.]+)', re.MULTILINE)


def addresses(host: str, port: int) -> list[str]:
    """Of all pods, as they stand in a URL; none while none has started."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return []
    ips = sorted({str(each[4][0]) for each in found})
    return [f"[{ip}]" if ":" in ip else ip for ip in ips]


def page(url: str) -> tuple[bool, str]:
    """Whether it was answered by 200, and what was answered."""
    try:
        with urllib.request.urlopen(url, timeout=5.0) as answer:
            return True, answer.read().decode()
    except urllib.error.HTTPError as error:
        return False, error.read().decode()
    except OSError as error:
        return False, str(error)


def missing(host: str, port: int, pods: int) -> Iterator[str]:
    """What is not as it should be."""
    ips = addresses(host, port)
    if len(ips) < pods:
        yield f"{len(ips)} of {pods} pods have an address"
    owned = {"estimator": 0.0, "updater": 0.0}
    for ip in ips:
        ready, told = page(f"http://{ip}:{port}/readyz")
        if not ready:
            yield f"{ip} is not ready: {told.strip()}"
        for role, count in OWNED.findall(page(f"http://{ip}:{port}/metrics")[1]):
            owned[role] += float(count)
    yield from (f"no {role} owns anything" for role, count in owned.items() if not count)


def main(service: str, pods: str, seconds: str = "120") -> int:
    """Ask until nothing is missing, or the time is over."""
    host, _, port = service.rpartition(":")
    end_s = time.monotonic() + float(seconds)
    while lines := list(missing(host, int(port), int(pods))):
        if time.monotonic() > end_s:
            print("\n".join(lines))
            return 1
        time.sleep(1.0)
    print("every worker is ready")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
