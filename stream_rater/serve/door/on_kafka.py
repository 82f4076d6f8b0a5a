"""What the door of `serve` has of Kafka."""

import threading
from collections.abc import Callable

from stream_rater.adapters.kafka.progress import KafkaProgress, RejectionReader
from stream_rater.adapters.kafka.round_log import KafkaRoundLog
from stream_rater.config.settings import Settings
from stream_rater.serve.door.following import DoorParts


def door_on_kafka(settings: Settings, trouble: Callable[[str], None]) -> DoorParts:
    """The parts of the door. Writing is on if there is a token for it. `trouble` receives the
    reason why Kafka does not answer."""
    stop = threading.Event()
    progress = KafkaProgress(settings)
    if not settings.serve_write_token:
        return DoorParts(None, progress, None, stop)
    rejections = RejectionReader(settings, stop).run
    return DoorParts(KafkaRoundLog(settings, trouble), progress, rejections, stop)
