"""The peer that a user would choose: Quix Streams with openskill. Its state is kept by ladder, the
key of a round's message. It runs from packages of its own (`peers.lock`), without our code."""

import os
import sys
from collections.abc import Iterator
from typing import Any


def main() -> None:
    options = {
        name: os.environ[f"QUIX_{name}"] for name in ("PEERS", "GUARANTEE", "STATE", "GROUP")
    }
    sys.path.insert(0, options["PEERS"])
    from openskill.models import PlackettLuce
    from quixstreams import Application

    prefix = os.environ["STREAM_RATER_TOPIC_PREFIX"]
    application = Application(
        broker_address=os.environ["STREAM_RATER_KAFKA"],
        consumer_group=prefix + options["GROUP"],
        processing_guarantee=options["GUARANTEE"],
        auto_offset_reset="earliest",
        state_dir=f"{options['STATE']}/quix-{prefix}",
        loglevel="WARNING",
        consumer_extra_config={
            "session.timeout.ms": os.environ["STREAM_RATER_SESSION_TIMEOUT_MS"],
            "fetch.message.max.bytes": 16 * 2**20,
        },
        producer_extra_config={
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        },
    )
    rounds = application.topic(f"{prefix}round-completed", key_deserializer="str")
    changed = application.topic(f"{prefix}rating-changed", key_serializer="str")
    rate = _rater(PlackettLuce())
    application.dataframe(rounds).apply(rate, stateful=True, expand=True).to_topic(
        changed, key=lambda event: f"{event['ladder']}:{event['player']}"
    )
    application.run()


def _rater(model: Any) -> Any:
    """Rates a round: reads and writes each player's rating, gives the events."""
    new = model.rating()

    def rate(event: dict[str, Any], state: Any) -> list[dict[str, Any]]:
        players = [entry["player"] for entry in event["standings"]]
        ranks = [entry.get("rank") or 2**31 for entry in event["standings"]]
        before = [state.get(player) or (new.mu, new.sigma) for player in players]
        teams = [[model.rating(mu, sigma)] for mu, sigma in before]
        after = [(team[0].mu, team[0].sigma) for team in model.rate(teams, ranks=ranks)]
        for player, rating in zip(players, after, strict=True):
            state.set(player, rating)
        return list(_events(event, players, ranks, before, after))

    return rate


def _events(
    event: dict[str, Any], players: list[str], ranks: list[int],
    before: list[tuple[float, float]], after: list[tuple[float, float]],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    rows = zip(players, ranks, before, after, strict=True)
    for player, rank, (previous_mu, previous_sigma), (mu, sigma) in rows:
        yield {
            "ladder": event["ladder"], "player": player, "round_id": event["round_id"],
            "completed_at": event["completed_at"], "rank": rank, "mu": mu, "sigma": sigma,
            "previous_mu": previous_mu, "previous_sigma": previous_sigma,
        }  # fmt: skip


if __name__ == "__main__":
    main()
