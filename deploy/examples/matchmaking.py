"""What a matchmaker does with ratings: follow `rating-changed`, predict, and propose line-ups.

Copy `Ratings` (a local table, always up to date, that needs nothing but confluent_kafka) and
`win_probability`. On the command line:

    python deploy/examples/matchmaking.py --ladder ranked-eu --players ada-1,bo-1
    python deploy/examples/matchmaking.py --ladder ranked-eu --teams ada-1,bo-1 cleo-1,dov-1
    python deploy/examples/matchmaking.py --ladder ranked-eu --line-up ada-1,bo-1,cleo-1,dov-1
    python deploy/examples/matchmaking.py --ladder royale-eu --lobbies 20
"""

import argparse
import difflib
import json
import math
import os
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

TOPIC = "rating-changed"
CONNECT_S = 10.0
TIMEOUT_S = 30.0
BATCH = 1000

BETA = 196.0
"""How much a player's form varies from round to round, in rating points, on ladders with the
default parameters; `beta_for` takes it from the ladders file for others."""

TEMPLATE = "*"
"""The ladder of a ladders file that stands for all that are not named."""

INITIAL_MU, INITIAL_SIGMA = 1500.0, 350.0
"""What a ladder with the default parameters knows of a player who has not played yet."""

EXHAUSTIVE = 12
"""Up to so many players every split into two teams is tried: at most 462."""


@dataclass(frozen=True, slots=True)
class Rating:
    """What is known of a player: skill is mu, give or take sigma."""

    mu: float = INITIAL_MU
    sigma: float = INITIAL_SIGMA
    shown: float = 960.0
    """The number to show to players: cautious at first, about mu in the long run."""
    rounds: int = 0
    provisional: bool = True
    """Too few rounds for the number to say much: a lobby may want to know."""
    offset: int = -1
    """Of the round, or the correction, that it is after: a greater one is newer."""


NEWCOMER = Rating()


class NotFollowed(Exception):
    """The ratings cannot be read: one line says why."""


# --- prediction -----------------------------------------------------------------------------------


def win_probability(ours: Sequence[Rating], theirs: Sequence[Rating], beta: float = BETA) -> float:
    """Probability that the first side (a player, or a team) finishes before the second.

    In the paper's model a player performs at mu with variance sigma^2 + beta^2: what we do not know
    of the skill, and how form varies. A team's performance is the sum of its members' (section
    3.3). So the difference of two sides has variance

        delta^2 = sum over all players of (sigma^2 + beta^2)

    which for two players is sigma_a^2 + sigma_b^2 + 2 beta^2. It is taken as normal, as `predict`
    takes it for every rating system. Sides of unequal size are compared by their deviations from
    the level of those present, the mean of all mu, as the service does. So an absent player counts
    as one of that level.

    Dividing by all of delta is what makes it honest about newcomers: an unknown player is never a
    sure winner, however good the first results.
    """
    everybody = (*ours, *theirs)
    level = sum(each.mu for each in everybody) / len(everybody)
    lead = sum(each.mu - level for each in ours) - sum(each.mu - level for each in theirs)
    delta = math.sqrt(sum(each.sigma**2 + beta**2 for each in everybody))
    return 0.5 * math.erfc(-lead / (math.sqrt(2.0) * delta))


def beta_of(weight_limit: float, sigma_limit: float, drift_per_day: float = 0.0) -> float:
    """The spread of performances on a ladder: beta^2 = (1 + 1/w) s^2 + d/w."""
    return math.sqrt((1.0 + 1.0 / weight_limit) * sigma_limit**2 + drift_per_day / weight_limit)


def beta_for(path: Path, ladder: str) -> float:
    """The spread on a ladder by the service's ladders file; ValueError if it has none.

    It holds for Elo-MMR, which is what `win_probability` assumes.
    """
    ladders = tomllib.loads(path.read_text())["ladders"]
    if ladder not in ladders and TEMPLATE not in ladders:
        raise ValueError(f"{path}: no ladder {ladder}")
    rating = ladders.get(ladder, ladders.get(TEMPLATE))["rating"]
    if "beta" in rating:
        return float(rating["beta"])
    if not {"weight_limit", "sigma_limit"} <= rating.keys():
        raise ValueError(f"{path}: ladder {ladder}, system {rating['system']}: give --beta")
    limits = rating["weight_limit"], rating["sigma_limit"]
    return beta_of(*limits, rating.get("drift_per_day", 0.0))


# --- line-ups -------------------------------------------------------------------------------------

Table = dict[str, Rating]
Team = tuple[str, ...]


def even_teams(players: Sequence[str], table: Table) -> tuple[Team, Team]:
    """Two teams of the same size whose ratings add up to nearly the same.

    Up to EXHAUSTIVE players by trying every split; beyond, the best players are dealt out in turns
    (1 2 2 1) and then swapped in pairs for as long as a swap helps.
    """
    if len(players) < 2 or len(players) % 2 or len(set(players)) < len(players):
        raise ValueError("two even teams need an even number of different players")
    mu = {name: table.get(name, NEWCOMER).mu for name in players}
    best_first = sorted(players, key=lambda name: (-mu[name], name))
    if len(players) <= EXHAUSTIVE:
        half, total = len(players) // 2, sum(mu.values())
        captain, others = best_first[0], best_first[1:]  # or each split would come up twice
        splits = ((captain, *rest) for rest in combinations(others, half - 1))
        ours = min(splits, key=lambda team: abs(total - 2.0 * sum(mu[name] for name in team)))
        return ours, tuple(name for name in best_first if name not in ours)
    return _swapped(best_first, mu)


def _swapped(best_first: Sequence[str], mu: dict[str, float]) -> tuple[Team, Team]:
    ours = [name for i, name in enumerate(best_first) if i % 4 in (0, 3)]
    theirs = [name for i, name in enumerate(best_first) if i % 4 in (1, 2)]
    for _ in range(len(best_first)):  # each swap narrows the gap, and seldom are many needed
        gap = sum(mu[name] for name in ours) - sum(mu[name] for name in theirs)
        pairs = ((i, j) for i in range(len(ours)) for j in range(len(theirs)))
        i, j = min(
            pairs, key=lambda pair: abs(gap - 2.0 * (mu[ours[pair[0]]] - mu[theirs[pair[1]]]))
        )
        if abs(gap - 2.0 * (mu[ours[i]] - mu[theirs[j]])) >= abs(gap):
            break
        ours[i], theirs[j] = theirs[j], ours[i]
    return tuple(ours), tuple(theirs)


def lobbies(players: Sequence[str], table: Table, size: int) -> list[Team]:
    """Groups of players next to each other by rating; those left over join the last group."""
    if size < 2:
        raise ValueError("a lobby needs two players")
    by_rating = sorted(players, key=lambda name: (-table.get(name, NEWCOMER).mu, name))
    groups = max(1, len(by_rating) // size)
    return [
        tuple(by_rating[i * size : (i + 1) * size if i + 1 < groups else None])
        for i in range(groups)
    ]


# --- the local table ------------------------------------------------------------------------------


class Ratings:
    """Everybody's rating, followed from `rating-changed`.

    The topic is compacted: it keeps at least the last event of each (ladder, player). Reading it
    from the beginning therefore gives everybody's rating, and there is nothing to store here: after
    a restart, read it again. No consumer group is needed, since each matchmaker wants all of it.

    Partitions are those that there are at the start. After shards were added, start again.
    """

    def __init__(self, kafka: str, topic: str = TOPIC) -> None:
        self.ladders: dict[str, Table] = {}
        """Ratings by ladder and player."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "none",  # required by the client; nothing is ever committed
                "enable.auto.commit": False,
                # Events of a transaction that was given up are not ratings.
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 2,  # whatever matters comes back as an error
            }
        )
        self._lagging = self._assign(kafka, topic)

    def _assign(self, kafka: str, topic: str) -> set[int]:
        """Read all partitions from the beginning: a player's are spread by the player's id."""
        try:
            known = self._consumer.list_topics(topic, timeout=CONNECT_S).topics[topic]
        except KafkaException as error:
            raise NotFollowed(
                f"Kafka at {kafka} (--kafka, or STREAM_RATER_KAFKA) does not answer: "
                f"{error.args[0].str()}"
            ) from None
        if not known.partitions:
            raise NotFollowed(f"no topic {topic}: `stream-rater run` creates it")
        self._consumer.assign(
            [TopicPartition(topic, p, OFFSET_BEGINNING) for p in known.partitions]
        )
        return set(known.partitions)

    @property
    def caught_up(self) -> bool:
        """Whether the end of every partition has been reached once."""
        return not self._lagging

    def poll(self, timeout_s: float) -> list[dict[str, Any]]:
        """Take what is there, or wait for the next event; the events, already in the table."""
        try:
            first = self._consumer.poll(timeout_s)
            messages = [] if first is None else [first, *self._consumer.consume(BATCH, 0.0)]
        except KafkaException as error:
            raise NotFollowed(f"Kafka: {error.args[0].str()}") from None
        events = []
        for message in messages:
            if (failure := message.error()) is not None:
                self._notice(failure, message.partition())
            elif (value := message.value()) is None:
                self._forget(message.key() or b"")
            else:
                events.append(json.loads(value))
                self._take(events[-1])
        return events

    def _notice(self, failure: KafkaError, partition: int | None) -> None:
        if failure.code() == KafkaError._PARTITION_EOF:
            self._lagging.discard(partition or 0)
        elif failure.fatal():  # the client mends all others by itself
            raise NotFollowed(f"Kafka: {failure.str()}")

    def _take(self, event: dict[str, Any]) -> None:
        """Keep a player's newest event on a ladder: the one with the greatest `offset`.

        The order of arrival does not say which that is. After shards were added, a player's new
        events are in another partition than the old ones, whose last stays in the topic, and
        partitions are read in any order. Workers do not delete it by a tombstone: one that arrives
        after the new event would delete the player here. Nor does `rounds` say so: it falls when a
        correction takes a round away.
        """
        table = self.ladders.setdefault(event["ladder"], {})
        if event["offset"] >= table.get(event["player"], NEWCOMER).offset:
            table[event["player"]] = Rating(
                event["mu"], event["sigma"], event["rating"], event["rounds"],
                event["provisional"], event["offset"],
            )  # fmt: skip

    def _forget(self, key: bytes) -> None:
        """Forget a player who was erased: the record has a key, and no value.

        Each partition that has the player's events has one behind them.
        """
        ladder, _, player = key.decode().partition(":")
        self.ladders.get(unquote(ladder), {}).pop(unquote(player), None)

    def table(self, ladder: str) -> Table:
        """A ladder's ratings; ValueError for one of which there is none: it may be misspelt."""
        if ladder not in self.ladders:
            nearest = difflib.get_close_matches(ladder, self.ladders, n=3, cutoff=0.0)
            known = ", ".join(nearest) or "none yet"
            raise ValueError(f"nobody has played on {ladder}; ladders like it: {known}")
        return self.ladders[ladder]

    def catch_up(self, timeout_s: float = TIMEOUT_S) -> None:
        """Read up to the present; NotFollowed if that takes too long."""
        deadline_s = time.monotonic() + timeout_s
        while not self.caught_up:
            if time.monotonic() > deadline_s:
                raise NotFollowed(f"the end of {TOPIC} was not reached within {timeout_s:g} s")
            self.poll(0.2)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


# --- the command line -----------------------------------------------------------------------------


def names(text: str) -> list[str]:
    """Player ids between commas."""
    return [name for name in text.split(",") if name]


def described(name: str, table: Table) -> str:
    """A player, as printed."""
    rating = table.get(name, NEWCOMER)
    if rating.rounds == 0:
        return f"{name} (has not played yet)"
    provisional = ", provisional" if rating.provisional else ""
    return f"{name} ({rating.mu:.0f} ± {rating.sigma:.0f}{provisional})"


def print_duel(players: list[str], table: Table, beta: float) -> None:
    """The chances of two players."""
    if len(players) != 2:
        raise ValueError("--players takes two names")
    a, b = players
    chance = win_probability([table.get(a, NEWCOMER)], [table.get(b, NEWCOMER)], beta)
    print(f"{described(a, table)} beats {described(b, table)} with probability {chance:.0%}")


def print_teams(ours: Sequence[str], theirs: Sequence[str], table: Table, beta: float) -> None:
    """Two teams and their chances."""
    if not (ours and theirs) or set(ours) & set(theirs):
        raise ValueError("two teams need players, and nobody plays in both")
    sides = [[table.get(name, NEWCOMER) for name in team] for team in (ours, theirs)]
    for label, team in (("team 1", ours), ("team 2", theirs)):
        print(f"{label}: {', '.join(described(name, table) for name in team)}")
    print(f"team 1 wins with probability {win_probability(sides[0], sides[1], beta):.0%}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The arguments; usage errors end with exit code 2."""
    environ = os.environ
    parser = argparse.ArgumentParser(description="Win probabilities and line-ups from ratings.")
    parser.add_argument("--ladder", required=True)
    parser.add_argument("--players", type=names, metavar="A,B", help="who wins?")
    parser.add_argument("--teams", type=names, nargs=2, metavar=("A,B", "C,D"), help="who wins?")
    parser.add_argument("--line-up", type=names, metavar="A,B,C,D", help="two even teams")
    parser.add_argument("--lobbies", type=int, metavar="SIZE", help="groups of similar players")
    parser.add_argument("--beta", type=float, help="the ladder's, instead of the ladders file's")
    parser.add_argument("--ladders", default=environ.get("STREAM_RATER_LADDERS"), metavar="FILE")
    parser.add_argument("--kafka", default=environ.get("STREAM_RATER_KAFKA", "127.0.0.1:9092"))
    parser.add_argument("--topic", default=environ.get("STREAM_RATER_TOPIC_PREFIX", "") + TOPIC)
    given = parser.parse_args(arguments)
    if not (given.players or given.teams or given.line_up or given.lobbies):
        parser.error("give --players, --teams, --line-up or --lobbies")
    return given


def beta_given(given: argparse.Namespace) -> float:
    """The spread that was asked for, or the ladders file's, or that of the default parameters."""
    if given.beta is not None:
        return float(given.beta)
    return beta_for(Path(given.ladders), given.ladder) if given.ladders else BETA


def show(given: argparse.Namespace, table: Table, beta: float) -> None:
    """Whatever was asked for."""
    if given.players:
        print_duel(given.players, table, beta)
    if given.teams:
        ours, theirs = given.teams
        print_teams(ours, theirs, table, beta)
    if given.line_up:
        ours, theirs = even_teams(given.line_up, table)
        print_teams(ours, theirs, table, beta)
    if given.lobbies:
        for number, lobby in enumerate(lobbies(list(table), table, given.lobbies), start=1):
            print(f"lobby {number}: {', '.join(described(name, table) for name in lobby)}")


def main(arguments: list[str] | None = None) -> int:
    """The command line: 0 done, 1 when the ratings cannot be read, 2 wrong usage."""
    given = parse(arguments)
    try:
        beta = beta_given(given)
        ratings = Ratings(given.kafka, given.topic)
        ratings.catch_up()
        ratings.close()
        show(given, ratings.table(given.ladder), beta)
    except NotFollowed as error:
        print(f"matchmaking: {error}", file=sys.stderr)
        return 1
    except (ValueError, KeyError, OSError) as error:
        print(f"matchmaking: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
