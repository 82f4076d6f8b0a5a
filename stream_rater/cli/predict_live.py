"""`stream-rater predict` by what Redis holds now. It needs the service's packages."""

from stream_rater.adapters.live_beliefs import (
    BeliefsBehind,
    LiveBeliefs,
    OtherLadders,
    UnratedLadder,
)
from stream_rater.cli.predict import Question, answer
from stream_rater.cli.terminal import unknown_ladder
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import service_ladders
from stream_rater.config.settings import Settings
from stream_rater.replay.what_if import RemovedPlayer
from stream_rater.runtime.failures import named_failures


def from_redis(asked: Question, settings: Settings, ladder: str, *, as_json: bool) -> None:
    """Answer by what Redis holds. Raises BadConfiguration if the ladders file is not that of the
    workers, Failed if no round of the ladder was rated or a server does not answer."""
    with named_failures():
        try:
            known = LiveBeliefs(settings, service_ladders(settings)).of(ladder, asked.players)
        except UnratedLadder as error:
            raise Failed(unknown_ladder(ladder, error.rated)) from None
        except OtherLadders as error:
            raise BadConfiguration(f"{error}: nothing was predicted") from None
        except (BeliefsBehind, RemovedPlayer) as error:
            raise Failed(str(error)) from None
    answer(asked, known, as_json=as_json)
