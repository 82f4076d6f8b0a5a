"""What a game studio's backend does when a round ends: report it to `round-completed`.

Copy `Reporter`: it needs nothing but confluent_kafka. The rest of this file makes up a season so
that there is something to report: players with a hidden true skill on two ladders.

    ranked-eu   small lobbies, duels and teams; equal scores tie
    royale-eu   lobbies of 10 to 40, alone or in squads; some players do not finish

    python deploy/examples/game_backend.py --rounds 100 --per-second 20

It ends with one line of JSON on standard output: what it has reported.
"""

import argparse
import json
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

Round = dict[str, Any]

TOPIC = "round-completed"
SOURCE = "/games/example-backend"
"""CloudEvents' `source`: who reports. A URI reference of your own."""

CONNECT_S = 10.0
TIMEOUT_S = 30.0
QUEUE_WAIT_S = 0.1


class NotReported(Exception):
    """Rounds that Kafka has not acknowledged; each may be reported again, under the same id."""


class Reporter:
    """Reports finished rounds, and knows when they are safe."""

    def __init__(self, kafka: str, topic: str = TOPIC) -> None:
        self._kafka, self._topic = kafka, topic
        self._failed: dict[str, tuple[Round, str]] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                # Kafka stores each report once and in the order of the calls, or reports an error.
                "enable.idempotence": True,
                "acks": "all",
                # A ladder is rated in the order of its partition, so every reporter of a ladder
                # must choose the same one: this is the choice of Java clients and of ours.
                "partitioner": "murmur2_random",
                "message.max.bytes": 16 * 2**20,
                "linger.ms": 1,
                "delivery.timeout.ms": int(TIMEOUT_S * 1000),
                "log_level": 2,  # whatever matters comes back as an error
            }
        )

    def check(self) -> None:
        """Raise NotReported, with a line that says why, when there is nowhere to report to."""
        try:
            topics = self._producer.list_topics(timeout=CONNECT_S).topics
        except KafkaException as error:
            raise NotReported(
                f"Kafka at {self._kafka} (--kafka, or STREAM_RATER_KAFKA) does not answer: "
                f"{error.args[0].str()}"
            ) from None
        if self._topic not in topics:
            raise NotReported(f"no topic {self._topic}: `stream-rater run` creates it")

    def report(self, finished: Round) -> None:
        """Hand over one finished round. It is safe once `flush` has returned."""
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    key=finished["ladder"].encode(),
                    value=json.dumps(finished).encode(),
                    headers=headers_of(finished),
                    on_delivery=self._delivery_of(finished),
                )
                return
            except BufferError:  # the queue is full: let it drain, and hear of deliveries
                self._producer.poll(QUEUE_WAIT_S)

    def wait_until(self, moment_s: float) -> None:
        """Hear of deliveries until `time.monotonic()` is there."""
        while (left_s := moment_s - time.monotonic()) > 0.0:
            self._producer.poll(left_s)

    def flush(self) -> None:
        """Return when every round is acknowledged by Kafka; NotReported names those that are not.

        What failed is sent once more first: the service rates a round id once, so that a report
        whose fate is unknown may always be repeated.
        """
        self._drain()
        again, self._failed = self._failed, {}
        for finished, _ in again.values():
            self.report(finished)
        self._drain()
        if self._failed:
            round_id, (_, reason) = next(iter(self._failed.items()))
            raise NotReported(f"{len(self._failed)} rounds not reported; {round_id}: {reason}")

    def _drain(self) -> None:
        left = self._producer.flush(2 * TIMEOUT_S)  # longer than any delivery may take
        if left:
            raise NotReported(f"{left} rounds are still not acknowledged")

    def _delivery_of(self, finished: Round) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._failed[finished["round_id"]] = (finished, error.str())

        return delivered


def headers_of(finished: Mapping[str, Any]) -> dict[str, str | bytes | None]:
    """The content type, and CloudEvents 1.0 in Kafka's binary mode (optional, but polite)."""
    return {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": finished["round_id"],
        "ce_type": TOPIC,
        "ce_source": SOURCE,
        "ce_time": finished["completed_at"],
    }


# --- a made-up season: from here on there is nothing to copy --------------------------------------

RANKED, ROYALE = "ranked-eu", "royale-eu"
NAMES = ("ada", "bo", "cleo", "dov", "eve", "finn", "gia", "hugo", "ines", "jan", "kira", "leo")

SKILL_MEAN, SKILL_SPREAD = 1500.0, 300.0
PERFORMANCE_SPREAD = 200.0
SCORE_POINTS = 40.0
"""Where players score points, performances are rounded to this; equal scores tie."""
DID_NOT_FINISH = 0.05
JOINED_LATE = 0.1
CHEAT = 1200.0
"""By so much a cheater plays above the hidden skill."""
REPEATED = 0.01
"""Share of rounds reported twice, as a backend does that crashed before it knew."""


class Season:
    """Rounds as they might happen; the same seed gives the same players and the same results."""

    def __init__(self, seed: int, first: int = 0, cheater: str | None = None) -> None:
        self._cheater = cheater
        players, self._rng = random.Random(f"{seed} players"), random.Random(f"{seed} {first}")
        self.skills = {
            ladder: {
                name: players.gauss(SKILL_MEAN, SKILL_SPREAD)
                for name in (f"{NAMES[i % len(NAMES)]}-{i // len(NAMES) + 1}" for i in range(count))
            }
            for ladder, count in ((RANKED, 200), (ROYALE, 400))
        }
        """Hidden true skill by ladder and player: what ratings try to find out."""

    def rounds(self, count: int) -> Iterator[Round]:
        """So many rounds, each completed at the moment it is asked for."""
        for _ in range(count):
            yield self._ranked() if self._rng.random() < 0.75 else self._royale()

    def _ranked(self) -> Round:
        rng = self._rng
        teams, size = rng.choice([(2, 1), (4, 1), (8, 1), (2, 2), (2, 4)])
        return self._play(RANKED, teams, size, points=SCORE_POINTS, dropout=0.0)

    def _royale(self) -> Round:
        teams, size = self._rng.choice([(20, 1), (40, 1), (10, 2), (10, 4)])
        return self._play(ROYALE, teams, size, points=1e-9, dropout=DID_NOT_FINISH)

    def _play(self, ladder: str, teams: int, size: int, *, points: float, dropout: float) -> Round:
        rng, skills = self._rng, self.skills[ladder]
        lobby = rng.sample(sorted(skills), teams * size)
        entries, scores = [], []
        for start in range(0, len(lobby), size):
            members = lobby[start : start + size]
            entries.append(self._entry(members))
            played = [rng.gauss(skills[name], PERFORMANCE_SPREAD) for name in members]
            if ladder == RANKED and self._cheater in members:
                played[members.index(self._cheater)] += CHEAT
            scores.append(round(sum(played) / points))
        for index, entry in enumerate(entries):
            if index and rng.random() < dropout:  # somebody always finishes
                entry["dnf"] = True
            else:
                entry["rank"] = 1 + sum(score > scores[index] for score in scores)
        return {
            "round_id": str(uuid.uuid4()),
            "ladder": ladder,
            "completed_at": datetime.now(UTC).isoformat(),
            "standings": entries,
        }

    def _entry(self, members: list[str]) -> dict[str, Any]:
        if len(members) == 1:
            return {"player": members[0]}
        entry: dict[str, Any] = {"team": members}
        if self._rng.random() < JOINED_LATE:
            entry["shares"] = [1.0] * (len(members) - 1) + [0.5]
        return entry

    def repeats(self) -> bool:
        """Whether the backend now reports a round a second time, to be sure."""
        return self._rng.random() < REPEATED


def players_of(finished: Round) -> int:
    """How many ratings this round changes."""
    return sum(len(entry.get("team", [1])) for entry in finished["standings"])


def stream(
    reporter: Reporter, season: Season, count: int, per_second: float | None
) -> dict[str, int]:
    """Report a season's rounds; what was reported."""
    counts = {"rounds": 0, "repeated": 0, "rating_changes_expected": 0}
    began_s = time.monotonic()
    for number, finished in enumerate(season.rounds(count)):
        reporter.report(finished)
        counts["rounds"] += 1
        counts["rating_changes_expected"] += players_of(finished)
        if season.repeats():
            reporter.report(finished)
            counts["repeated"] += 1
        if per_second:
            reporter.wait_until(began_s + (number + 1) / per_second)
    reporter.flush()
    return counts


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The arguments; usage errors end with exit code 2."""
    environ = os.environ
    parser = argparse.ArgumentParser(description="Report a made-up season of rounds.")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--per-second", type=float, help="rounds a second; else all at once")
    parser.add_argument("--seed", type=int, default=1, help="other players, other results")
    parser.add_argument("--first", type=int, default=0, help="go on with a season at this round")
    parser.add_argument("--cheater", metavar="PLAYER", help=f"who cheats on {RANKED}")
    parser.add_argument("--kafka", default=environ.get("STREAM_RATER_KAFKA", "127.0.0.1:9092"))
    parser.add_argument("--topic", default=environ.get("STREAM_RATER_TOPIC_PREFIX", "") + TOPIC)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """The command line: 0 when every round is reported, 1 with one line when not."""
    given = parse(arguments)
    try:
        reporter = Reporter(given.kafka, given.topic)
        reporter.check()
        season = Season(given.seed, given.first, given.cheater)
        print(json.dumps(stream(reporter, season, given.rounds, given.per_second)))
    except NotReported as error:
        print(f"game_backend: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
