"""Reports a round by HTTP, and waits for its ratings. It needs the standard library only.

RATER_URL and RATER_TOKEN name the API of `stream-rater serve`, and its token for writing.
"""

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from datetime import UTC, datetime
from typing import Any

URL = os.environ.get("RATER_URL", "http://127.0.0.1:9109")
HEADERS = {
    "Authorization": f"Bearer {os.environ.get('RATER_TOKEN', '')}",
    "Content-Type": "application/json",
}
TIMEOUT_S = 60.0
"""The longest time for which a round is sent again."""


def ask(path: str, body: Any = None) -> Any:
    """One request: the answer, or urllib's error."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, HEADERS)
    with urllib.request.urlopen(request, timeout=40) as answer:
        return json.load(answer)


def report(ladder: str, finished: Any) -> Any:
    """Send a round until it is stored for good. The same `round_id` counts once."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask(f"/v1/ladders/{urllib.parse.quote(ladder, safe='')}/rounds", finished)
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503) or time.monotonic() > deadline_s:
                raise SystemExit(f"refused: {error.read().decode()}") from None
            time.sleep(float(error.headers.get("Retry-After", 1)))
        except OSError:  # no answer: it may be stored or not
            if time.monotonic() > deadline_s:
                raise
            time.sleep(1.0)


finished: Any = {
    "round_id": str(uuid.uuid4()),
    "completed_at": datetime.now(UTC).isoformat(),
    "standings": [{"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}],
}
report("duel", finished)
state: Any = {"state": "pending"}
while state["state"] == "pending":
    state = ask(f"/v1/ladders/duel/rounds/{finished['round_id']}?wait=30")
print(state["state"])
for change in state["changes"]:
    print(change["player"], change["previous_rating"], "->", change["rating"])
