"""`make demo SERVERS=1`: a season of rounds through the service, on real Kafka and Redis.

Four kinds of processes, as in production: the servers, `stream-rater run`, and the two examples,
`game_backend.py` that reports rounds and `matchmaking.py` that uses ratings (the leaderboard here
is its `Ratings`, too). First rounds come at a steady rate, where the time from a round's report to
the rating changes is measured; then many at once, where the rating changes a second are counted;
then `stream-rater verify` compares every rating with a sequential replay. At last a cheater is
removed by `stream-rater correct`, and verify compares with a replay without the cheater.

Where STREAM_RATER_KAFKA and STREAM_RATER_REDIS point at servers, the demo uses those and deletes
what it made there. Whatever it starts it stops, by process id, also on Ctrl-C and on errors.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from demonstration.corner import NoCorner, corner
from demonstration.correction import CHEATER, COMMAND, SHOWN_MOVES, Case, gained
from demonstration.figures import Phase, agreement
from demonstration.programs import (
    GAME_BACKEND,
    LADDERS,
    MATCHMAKING,
    STOP_TIMEOUT_S,
    STREAM_RATER,
    DemoFailed,
    Environment,
    output_of,
    program,
    start_service,
)
from demonstration.screen import Screen
from examples.game_backend import RANKED, Season
from examples.matchmaking import TOPIC, NotFollowed, Ratings, beta_for
from local.servers import LocalServerError, Server, servers
from stream_rater.cli.correct import table_of
from stream_rater.config.settings import PREFIX
from stream_rater.runtime.progress import counted

WARM_UP_S = 3.0
"""Latencies are measured after this much of the steady rounds (after half of a shorter season)."""

STILL_S = 120.0
"""Without a rating change for so long, something is wrong, however busy the machine is."""

VERIFY_TIMEOUT_S = 600.0
CORRECT_TIMEOUT_S = 300.0
MATCHMAKING_TIMEOUT_S = 300.0
LINE_UP = 8
POLL_S = 0.05


@dataclass
class Demo:
    """A run of the demo: its servers, its size, and its results."""

    given: argparse.Namespace
    console: Console
    folder: Path
    environment: Environment
    service: Server
    ratings: Ratings
    season: Season
    began_s: float
    case: Case
    counts: dict[str, int] = field(default_factory=dict)
    """The counts that the game backend has printed, summed over both phases."""

    def play(self) -> None:
        """Play the whole demo."""
        with Screen(self.console, self.ratings, self.season.skills).on() as screen:
            steady = self._stream(screen, "steady", self.given.rounds, self.given.per_second)
            burst = self._stream(screen, "all at once", self.given.burst, None)
        self._use_ratings()
        self._print("stream-rater verify:", self._verify())
        self._no_more(steady, burst)
        gains = self._correct()
        self._stop_service()
        self.console.print(self._table(steady, burst, gains))

    def _stream(self, screen: Screen, title: str, rounds: int, per_second: float | None) -> Phase:
        """Let the game backend report rounds and follow until every rating change is here."""
        lasts_s = rounds / per_second if per_second else 0.0
        phase = Phase(min(WARM_UP_S, lasts_s / 2.0))
        command = [*GAME_BACKEND, "--rounds", str(rounds), "--seed", str(self.given.seed)]
        command += ["--first", str(self.counts.get("rounds", 0)), "--cheater", CHEATER]
        command += ["--per-second", str(per_second)] if per_second else []
        deadline_s = time.monotonic() + STILL_S
        expected: int | None = None
        with program("game_backend", command, self.folder, self.environment) as backend:
            while expected is None or phase.changes < expected:
                events = self.ratings.poll(POLL_S)
                if events:
                    deadline_s = time.monotonic() + STILL_S
                phase.take(events, time.time())
                self.case.take(events)
                screen.show(phase, title)
                if expected is None and not backend.running:
                    expected = self._reported(backend.result(0.0))
                self._check(deadline_s, phase, expected)
        screen.show(phase, title, last=True)
        return phase

    def _reported(self, result: str) -> int:
        """Add what the backend reported. Returns the number of rating changes that must follow."""
        counts: dict[str, int] = json.loads(result)
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        return counts["rating_changes_expected"]

    def _check(self, deadline_s: float, phase: Phase, expected: int | None) -> None:
        if not self.service.running:
            raise DemoFailed("the service ended", self.service.log)
        if time.monotonic() > deadline_s:
            wanted = "rounds still being reported" if expected is None else f"of {expected}"
            came = f"no rating change for {STILL_S:g} s, after {phase.changes}"
            raise DemoFailed(f"{came}, {wanted}", self.service.log)

    def _use_ratings(self) -> None:
        """Ask the matchmaking example for a win probability and a line-up."""
        table = self.ratings.ladders[RANKED]
        best = sorted(table, key=lambda name: -table[name].shown)[:LINE_UP]
        command = [
            *MATCHMAKING, "--ladder", RANKED, "--beta", str(beta_for(LADDERS, RANKED)),
            "--players", f"{best[0]},{best[-1]}", "--line-up", ",".join(best),
        ]  # fmt: skip
        answer = output_of(
            "matchmaking", command, self.folder, self.environment, MATCHMAKING_TIMEOUT_S
        )
        self._print(f"\nmatchmaking, {RANKED}:", answer)

    def _print(self, *lines: str) -> None:
        """Print lines, and an empty one after them."""
        self.console.print(*lines, "", sep="\n", soft_wrap=True, highlight=False)

    def _verify(self) -> str:
        """Run `stream-rater verify`. Raises DemoFailed if anything differs."""
        command = [*STREAM_RATER, "verify"]
        return output_of("verify", command, self.folder, self.environment, VERIFY_TIMEOUT_S)

    def _correct(self) -> str:
        """Remove the cheater by `stream-rater correct`, and let `verify` compare with a replay
        without the cheater. Returns a sentence on who got points back."""
        case = self.case
        case.open()
        if not case.rounds:
            return f"none: {CHEATER} has not played in so short a season"
        command = [*STREAM_RATER, *COMMAND]
        answer = output_of("correct", command, self.folder, self.environment, CORRECT_TIMEOUT_S)
        equal = self._verify()  # `verify` waits until the workers are done
        moves = case.close()
        self._print(
            f"A cheater was found: {CHEATER} won {case.wins} of {counted(case.rounds, 'round')}.",
            f"stream-rater {' '.join(COMMAND)}:", answer,
        )  # fmt: skip
        self.console.print(table_of(RANKED, moves[:SHOWN_MOVES]))
        self._print(f"\nstream-rater verify, which now replays without {CHEATER}:", equal)
        return f"{gained(moves)} of {len(moves) - 1} who moved got points back"

    def _no_more(self, *phases: Phase) -> None:
        """Every rating change came, and came once."""
        surplus = len(self.ratings.poll(POLL_S)) + sum(phase.twice for phase in phases)
        missing = self.counts["rating_changes_expected"] - sum(len(phase.seen) for phase in phases)
        if missing or surplus:
            raise DemoFailed(f"{missing} rating changes are missing, {surplus} came twice")

    def _stop_service(self) -> None:
        """Send SIGTERM. The service must finish its work and exit with 0."""
        log = self.service.log
        if (code := self.service.stop(STOP_TIMEOUT_S)) != 0:
            raise DemoFailed(f"the service ended with exit code {code} after SIGTERM", log)

    def _table(self, steady: Phase, burst: Phase, gains: str) -> Table:
        counts = self.counts
        table = Table(title="Measured", show_header=False)
        table.add_row(
            "rounds", f"{counts['rounds']:,} reported, {counts['repeated']} of them twice"
        )
        expected = counts["rating_changes_expected"]
        table.add_row("rating changes", f"{expected:,}: none missing, none twice")
        table.add_row(
            "updates per second",
            f"{burst.per_second:,.0f}, with {len(burst.rounds):,} rounds reported at once",
        )
        for name, percent in (("p50", 50), ("p99", 99)):
            table.add_row(
                f"{name} from round to rating",
                f"{steady.percentile_ms(percent):.0f} ms, at {steady.per_second:,.0f} updates a "
                "second",
            )
        for ladder, skills in sorted(self.season.skills.items()):
            ratings = self.ratings.ladders.get(ladder, {})
            shown = {name: each.mu for name, each in ratings.items() if each.rounds}
            table.add_row(f"pairs in true order, {ladder}", f"{agreement(shown, skills):.0%}")
        table.add_row(f"removal of {CHEATER}", gains)
        table.add_row("verify", "equal to the sequential replay, bit for bit")
        table.add_row("all of it", f"{time.monotonic() - self.began_s:.1f} s")
        table.caption = (
            "round to rating: from the moment the game backend hands round-completed to Kafka's "
            "client to the moment the follower has rating-changed, on one clock, after "
            f"{steady.warm_up_s:g} s of warm-up. pairs in true order: of all pairs of players, "
            "those that the ratings order as their hidden skills do."
        )
        return table


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The parsed arguments."""
    parser = argparse.ArgumentParser(prog="demo", description="A season through the service.")
    parser.add_argument("--rounds", type=int, default=800, help="reported at a steady rate")
    parser.add_argument("--per-second", type=float, default=40.0, help="that rate")
    parser.add_argument("--burst", type=int, default=1200, help="reported all at once, afterwards")
    parser.add_argument("--seed", type=int, default=1, help="other players, other results")
    given = parser.parse_args(arguments)
    if min(given.rounds, given.per_second, given.burst) <= 0:
        parser.error("--rounds, --per-second and --burst must be more than 0")
    return given


@contextmanager
def ready_demo(given: argparse.Namespace, console: Console) -> Iterator[Demo]:
    """Servers, service and follower for the block."""
    began_s = time.monotonic()
    with (
        servers() as at,
        corner(at) as environment,
        tempfile.TemporaryDirectory(prefix="stream-rater-demo-") as name,
    ):
        console.print(f"Kafka at {at.kafka}, Redis at {at.redis}; starting the service …")
        environment |= {f"{PREFIX}LADDERS": str(LADDERS)}
        folder = Path(name)
        with start_service(folder, environment) as service:
            console.print(f"service ready after {time.monotonic() - began_s:.1f} s")
            topic = environment[f"{PREFIX}TOPIC_PREFIX"] + TOPIC
            with closing(Ratings(at.kafka, topic)) as ratings:
                ratings.catch_up()
                yield Demo(
                    given, console, folder, environment, service, ratings, Season(given.seed),
                    began_s, Case(ratings),
                )  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run the demo. Returns 0, or 1 after one line and the end of a log if anything failed."""
    console = Console(soft_wrap=not sys.stdout.isatty())
    given = parse(arguments)
    try:
        with ready_demo(given, console) as demo:
            demo.play()
    except DemoFailed as error:
        print(f"demo: {error}", *error.tail, sep="\n    ", file=sys.stderr)
        return 1
    except (LocalServerError, NoCorner, NotFollowed, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; all that it started is stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
