"""The records of the topic `season-ended`: who stood where when a season ended.

The standings of a season are final. They come of the log before the record that starts the next
season, as the corrections edit it that were applied before. A later correction does not change
them.

A job writes the standings in pages, and each page in one transaction with a record that says so. So
every listed player of a season has one record. The last page comes with the summary of the season.
All records of a ladder are in one partition.
"""

import msgspec

from stream_rater.contract.events import UNDECODABLE, cloud_event_headers, joined, to_json
from stream_rater.contract.record import ANY_OFFSET, Record

PLAYERS_PER_PAGE = 5000  # The players of a page, except of the last one, which may have fewer.

SEASON_ENDED = "season-ended"  # The name of the topic.

BEFORE_SEASONS = 0  # The number that stands for the time before a ladder's first season.


class Standing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a listed player stood when a season ended."""

    ladder: str
    season: int
    """The number of the season; 0 for the time before the first season."""
    player: str
    rank: int
    """The rank, from 1, the best. Players of equal rating share a rank."""
    listed: int
    """The number of listed players."""
    percentile: float
    """The number of other listed players who are not better, in per cent of all listed players."""
    tier: str | None
    """The name of the tier of the rating, without hysteresis; None if the ladder has no tiers."""
    rating: float
    """The displayed rating."""
    mu: float
    sigma: float
    rounds: int
    """The number of the player's rounds, over all seasons."""


class PageWritten(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The mark that a page of a season's standings is written. It is in the transaction of the
    page."""

    ladder: str
    season: int
    page: int
    """The number of the page, from 0."""
    pages: int
    """The number of pages of the season."""
    digest: str
    """A digest of all standings of the season, so that pages of two computations never mix."""


class SeasonKept(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The summary of a season. It is in the transaction of the last page."""

    ladder: str
    season: int
    """The number of the season; 0 for the time before the first season."""
    started_at: str | None
    """When the season started (RFC 3339); None for the time before the first season."""
    ended_at: str
    """When the next season started (RFC 3339)."""
    offset: int
    """The offset of the record that starts the next season. The standings are those before it."""
    players: int
    """The number of players with at least one counted round."""
    listed: int
    """The number of listed players."""
    pages: int


SeasonRecord = Standing | PageWritten | SeasonKept

KINDS: dict[type[SeasonRecord], str] = {
    Standing: SEASON_ENDED,
    PageWritten: "season-page-written",
    SeasonKept: "season-kept",
}
"""The kinds of records: a player's standing, the mark of a page, and the summary of a season."""

_kinds: dict[int, type[SeasonRecord]] = {2: SeasonKept, 3: Standing, 4: PageWritten}
"""The kind of a record, by the number of parts of its key."""
_decoders = {kind: msgspec.json.Decoder(kind) for kind in KINDS}


def key_of(record: SeasonRecord) -> str:
    """The key of a record: `ladder:season:player` for a standing. The keys of other records have
    another number of parts, so that none of them is the key of a player."""
    season = str(record.season)
    match record:
        case Standing(player=player):
            return joined(record.ladder, season, player)
        case PageWritten(page=page):
            return joined(record.ladder, season, "page", str(page))
        case SeasonKept():
            return joined(record.ladder, season)


def encoded(record: SeasonRecord, ended_at: str) -> Record:
    """A record as it lies in the topic. Equal ones have equal bytes. `ended_at`: when the season
    ended (RFC 3339)."""
    return stored(key_of(record).encode(), to_json(record), ended_at)


def stored(key: bytes, value: bytes, ended_at: str) -> Record:
    """The same with this key and value."""
    kind = _kinds[key.count(b":") + 1]
    headers = cloud_event_headers(key.decode(), KINDS[kind], ended_at)
    return Record(0, ANY_OFFSET, value, headers, key=key)


def decoded(record: Record) -> SeasonRecord | None:
    """What a record of the topic says, by its key; None if it is of no known kind."""
    kind = _kinds.get((record.key or b"").count(b":") + 1)
    if kind is None or record.value is None:
        return None
    try:
        return _decoders[kind].decode(record.value)
    except UNDECODABLE:
        return None


def is_mark(record: Record) -> bool:
    """Whether a record of the topic is the mark of a page or a summary, by its key."""
    return _kinds.get((record.key or b"").count(b":") + 1) is not Standing
