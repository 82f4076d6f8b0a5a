"""An operator's function that returns tokens, such as `STREAM_RATER_KAFKA_TOKEN` names."""

import base64
import json
import os
import time
from pathlib import Path

USER = "rater"
TOKEN_S = 8  # How long a token is valid.
CALLS = "SIGNER_CALLS"  # The variable that names the file to which each call adds a byte.


def part_of(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def signed() -> tuple[str, float]:
    """A token without a signature, which Kafka accepts for tests, and when it expires."""
    now_s = time.time()
    content = {"sub": USER, "iat": now_s, "exp": now_s + TOKEN_S}
    return f"{part_of({'alg': 'none'})}.{part_of(content)}.", now_s + TOKEN_S


def token(config: str) -> tuple[str, float]:
    """The function that the service calls."""
    with Path(os.environ[CALLS]).open("a", encoding="utf-8") as calls:
        calls.write("x")
    return signed()
