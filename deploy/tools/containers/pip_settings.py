"""pip's settings on this machine, for a pip that runs in a container: the index, the certificates.

They are read when an image is built and lent to that build. No image keeps them.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
"""Where Debian has certificates, and where a build finds those of this machine."""
OF_THE_NETWORK: Final = {
    "index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries", "find-links"
}  # fmt: skip
CERTIFICATE_VARIABLES: Final = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def current() -> dict[str, str]:
    """pip's settings here, as `pip config list` prints them."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return read(done.stdout)


def read(output: str) -> dict[str, str]:
    """Name and value of each setting. Variables take precedence over files."""
    lines = re.findall(r"^([\w:-]+)\.([\w-]+)=('.*'|\".*\")$", output, re.MULTILINE)
    ordered = sorted(lines, key=lambda each: each[0] == ":env:")
    return {name: str(ast.literal_eval(value)) for _, name, value in ordered}


def as_file(settings: Mapping[str, str]) -> str:
    """A pip.conf for the container: how packages are found, and where its certificates are.

    Settings that name folders of this machine are left out.
    """
    kept = {name: value for name, value in settings.items() if name in OF_THE_NETWORK}
    links = [each for each in kept.pop("find-links", "").split() if "://" in each]
    if links:
        kept["find-links"] = " ".join(links)
    if "cert" in settings:
        kept["cert"] = CERTIFICATES
    body = "".join(f"{name} = {' '.join(value.split())}\n" for name, value in kept.items())
    return f"[global]\n{body}"


def certificates(settings: Mapping[str, str], environment: Mapping[str, str]) -> Path | None:
    """The file of certificate authorities that settings name, if it exists."""
    named = [settings.get("cert"), *(environment.get(name) for name in CERTIFICATE_VARIABLES)]
    return next((Path(each) for each in named if each and Path(each).is_file()), None)
