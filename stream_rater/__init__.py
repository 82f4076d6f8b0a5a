"""stream_rater: a streaming rater for games, exact to the bit whatever crashes.

`Ladder` rates rounds in Python, without any server. What stands here is loaded when it is first
asked for, so that `import stream_rater` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

    from stream_rater.config.errors import MissingExtra, TrialsFailed
    from stream_rater.evaluation.measures import Evaluation
    from stream_rater.library.comparing import compare
    from stream_rater.library.ladder import Ladder
    from stream_rater.library.results import (
        Belief,
        Calibration,
        Comparison,
        FileResult,
        History,
        InvalidRound,
        Leaderboard,
        OtherLadder,
        Players,
        Prediction,
        RefusedLine,
        RefusedLines,
        RoundResult,
        SeedResult,
        Tuning,
    )
    from stream_rater.rating.parameters import BadParameters
else:
    _HOMES = {
        "BadParameters": "rating.parameters",
        "Belief": "library.results",
        "Calibration": "library.results",
        "Comparison": "library.results",
        "Evaluation": "evaluation.measures",
        "FileResult": "library.results",
        "History": "library.results",
        "InvalidRound": "library.results",
        "Ladder": "library.ladder",
        "Leaderboard": "library.results",
        "MissingExtra": "config.errors",
        "OtherLadder": "library.results",
        "Players": "library.results",
        "Prediction": "library.results",
        "RefusedLine": "library.results",
        "RefusedLines": "library.results",
        "RoundResult": "library.results",
        "SeedResult": "library.results",
        "TrialsFailed": "config.errors",
        "Tuning": "library.results",
        "compare": "library.comparing",
    }

    def __getattr__(name):
        if name == "__version__":
            return import_module("importlib.metadata").version("stream-rater")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "BadParameters",
    "Belief",
    "Calibration",
    "Comparison",
    "Evaluation",
    "FileResult",
    "History",
    "InvalidRound",
    "Ladder",
    "Leaderboard",
    "MissingExtra",
    "OtherLadder",
    "Players",
    "Prediction",
    "RefusedLine",
    "RefusedLines",
    "RoundResult",
    "SeedResult",
    "TrialsFailed",
    "Tuning",
    "compare",
]
