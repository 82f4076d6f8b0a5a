"""The least that decodes a usual round, of players with ranks or of teams, and checks it: msgspec
alone.

The null pipelines read rounds by it. It is no part of the service, which decodes many in one call.
"""

from typing import Annotated

import msgspec

from stream_rater.contract.events import MAX_RANK, Round

PlainId = Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
"""32 characters are never over 128 bytes."""
PlainRank = Annotated[int, msgspec.Meta(ge=1, le=MAX_RANK)]


class PlainEntry(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A player alone, who finished."""

    player: PlainId
    rank: PlainRank


class PlainRound(Round, frozen=True, kw_only=True, gc=False):
    """A round in which all entries are plain: it decodes to what is valid, or not at all."""

    standings: list[PlainEntry]


class PlainTeam(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A team that finished, all of whose members played the whole round."""

    team: list[PlainId]
    rank: PlainRank


class PlainTeams(Round, frozen=True, kw_only=True, gc=False):
    """A round of such teams."""

    standings: list[PlainTeam]


plain_teams_from_json = msgspec.json.Decoder(PlainTeams).decode
plain_round_from_json = msgspec.json.Decoder(PlainRound).decode
