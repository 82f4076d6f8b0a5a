"""What commands send, in the place of a submitter to Kafka."""

import json
from typing import Any

import pytest

from stream_rater.contract.corrections import KINDS, from_message
from tests.builders.memory_places import an_empty_place, use


class Sent:
    """Takes all records from partition 3, offset 17 on; acknowledges none if `broken`."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.sent: list[tuple[str, str, dict[str, Any]]] = []
        """Ladder, kind (empty for a round), and the event."""
        self.flushed_after: list[int] = []
        self.failures: list[str] = []
        self.corrections: list[tuple[int, int]] = []
        self.broken = False

    def submit(self, ladder: str, round_id: str, completed_at: str, value: bytes) -> None:
        self.sent.append((ladder, "", json.loads(value)))

    def correct(self, ladder: str, kind: str, value: bytes, subject: str) -> None:
        assert kind not in KINDS or from_message(kind, value).ladder == ladder
        if self.broken:
            self.failures.append(f"{kind} {subject}: away")
        else:
            self.corrections.append((3, 17 + len(self.sent)))
        self.sent.append((ladder, kind, json.loads(value)))

    def flush(self) -> None:
        self.flushed_after.append(len(self.sent))

    @property
    def kinds(self) -> list[str]:
        return [kind for _, kind, _ in self.sent]

    def forget(self) -> None:
        self.sent.clear()
        self.corrections.clear()


def taking(monkeypatch: pytest.MonkeyPatch, partitions: int = 4, end: int = 7) -> Sent:
    """Takes what commands send to a topic of so many partitions, each of which ends there."""
    taken, place = Sent(end), an_empty_place(partitions)
    monkeypatch.setattr(place, "ends", lambda: [taken.end] * partitions)
    monkeypatch.setattr(place, "submitter", lambda **_: taken)
    use(monkeypatch, place)
    return taken
