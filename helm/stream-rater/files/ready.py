"""What `helm test` runs: every worker is ready, and every partition and shard has its owner.

    python -c "$(cat ready.py)" SERVICE:PORT PODS [SECONDS] [API:PORT]

The service is headless: its name has an address for every pod. With the name of an API, that is
ready, too. Prints what is missing; exit code 1 if it still is when the time is over.
"""

import re
import socket
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator

SHARES = re.compile(r'^stream_rater_(owned|partitions)\{role="(\w+)"\} (\d+)', re.MULTILINE)


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
    owned, there = Counter[str](), Counter[str]()
    for ip in ips:
        ready, answer = page(f"http://{ip}:{port}/readyz")
        if not ready:
            yield f"{ip} is not ready: {answer.strip()}"
        for what, role, count in SHARES.findall(page(f"http://{ip}:{port}/metrics")[1]):
            if what == "owned":
                owned[role] += int(count)
            else:
                there[role] = int(count)
    for role, of in (("estimator", "partitions"), ("updater", "shards")):
        if not there[role]:
            yield f"no {role} knows its {of}"
        elif owned[role] < there[role]:
            yield f"{owned[role]} of {there[role]} {of} have an {role}"


def missing_api(api: str) -> Iterator[str]:
    """Why the API is not ready."""
    if api:
        ready, answer = page(f"http://{api}/readyz")
        if not ready:
            yield f"the API is not ready: {answer.strip()}"


def main(service: str, pods: str, seconds: str = "120", api: str = "") -> int:
    """Ask until nothing is missing, or the time is over."""
    host, _, port = service.rpartition(":")
    end_s = time.monotonic() + float(seconds)
    while lines := [*missing(host, int(port), int(pods)), *missing_api(api)]:
        if time.monotonic() > end_s:
            print("\n".join(lines))
            return 1
        time.sleep(1.0)
    print("every worker is ready, every partition and shard has its owner")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
