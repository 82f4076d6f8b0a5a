"""`make contract`: the events as an AsyncAPI 3 document, deploy/asyncapi.yaml.

The schemas come from the types in `stream_rater.contract`, which the service decodes and encodes
with. `stream_rater.rounds` has further rules; those that JSON Schema can express are added here. A
test compares the two.
"""

import sys
from typing import Any, Final

import msgspec
import yaml

from local.tools import ROOT
from stream_rater.adapters.kafka.envelopes import DECIDED_OFFSET
from stream_rater.config.ladders import Limits
from stream_rater.contract import corrections, events, record, season_ended
from stream_rater.contract.corrections import EVENT_TYPE, KINDS, Correction
from stream_rater.contract.errors import REJECTIONS
from stream_rater.contract.events import LOG_LOST, MAX_ID_BYTES, MAX_RANK, SOURCE
from stream_rater.contract.season_ended import SeasonKept, Standing
from stream_rater.contract.seeds import MOST_PLAYERS, SEEDS, PlayerReset, PlayersSeeded
from stream_rater.rating.seats import MOST_CHARACTERS
from stream_rater.rounds.batch import MAX_TIME_LENGTH
from stream_rater.rounds.correction_records import LAST_SEASON, MOST_SEEDED_ROUNDS, MOST_SIGMA
from stream_rater.rounds.validation import LEAST_CEILING, LEAST_SHARE, MIN_ENTRIES

DOCUMENT: Final = ROOT / "deploy" / "asyncapi.yaml"
SCHEMAS: Final = "#/components/schemas/"
VERSION: Final = "1.4.0"
"""The version of the events. An addition raises the middle number. No other change is made."""

Json = dict[str, Any]

ID: Final[Json] = {"minLength": 1, "maxLength": MAX_ID_BYTES}
"""An id. The limit is in bytes of UTF-8; JSON Schema can only limit characters."""
TIME: Final[Json] = {"format": "date-time", "minLength": 1, "maxLength": MAX_TIME_LENGTH}

PLAYED: Final[Json] = {"properties": {"dnf": {"const": True}}, "required": ["dnf"]}
RANKED: Final[Json] = {"properties": {"rank": {"type": "integer"}}, "required": ["rank"]}
ALONE: Final[Json] = {
    "properties": {"player": {"type": "string"}, "team": {"type": "null"},
                   "shares": {"type": "null"}},
    "required": ["player"],
}  # fmt: skip
TOGETHER: Final[Json] = {
    "properties": {"player": {"type": "null"}, "team": {"type": "array"}},
    "required": ["team"],
}

ROUND: Final = {
    "round_id": ID | {"description": "Of the reporter's choice; rated once per ladder and id."},
    "ladder": ID | {"description": "An independent pool of ratings."},
    "completed_at": TIME,
    "standings": {"minItems": MIN_ENTRIES},
    "weight": {"exclusiveMinimum": 0, "maximum": Limits().max_weight},
    "performance_ceiling": {"minimum": LEAST_CEILING},
}
ENTRY: Final = {
    "player": ID,
    "rank": {"minimum": 1, "maximum": MAX_RANK, "description": "1 is best; equal ranks tie."},
    "dnf": {
        "description": "Did not finish: worse than all who did. Several tie, or are not compared, "
        "as the ladder says."
    },
    "team": {"minItems": 1, "uniqueItems": True, "items": {"type": "string", **ID}},
    "shares": {
        "description": "The part of the round that each member played.",
        "items": {"type": "number", "minimum": LEAST_SHARE, "maximum": 1},
    },
    "seat": {
        "minLength": 1, "maxLength": MOST_CHARACTERS, "pattern": "^[ -~]+$",
        "description": "From where it played, such as home, away or white: in printable ASCII. A "
        "ladder that uses seats gives points for some.",
    },
    "score": {"description": "What it scored: goals, points. The rank decides the order."},
}  # fmt: skip

CORRECTION: Final = {
    "ladder": ID,
    "reason": {"description": "For people: it is stored, and changes nothing."},
    "event_type": {"description": f"As in a file, which has no header {EVENT_TYPE}."},
    "seed": {"description": "Whether the player leaves the seeds and resets of that time, too."},
    "batched": {"description": "Wait for the ladder's next corrections-applied."},
    "round_id": ID | {"description": "Of two rounds with this id the last one is meant."},
    "standings": {"minItems": MIN_ENTRIES, "description": "All of them, as they should have been."},
    "completed_at": TIME,
    "weight": ROUND["weight"],
    "performance_ceiling": ROUND["performance_ceiling"],
    "player": ID,
    "into": ID | {"description": "Whose the player's rounds are from now on, and were before."},
    "from": TIME | {"description": "Rounds completed then or later; null: from the first one on."},
    "until": TIME | {"description": "Rounds completed before then; null: for ever."},
    "season": {
        "minimum": 1, "maximum": LAST_SEASON,
        "description": "Its number: greater than that of the season before.",
    },
    "keep": {
        "minimum": 0, "maximum": 1,
        "description": "The part of the distance of mu from the initial one that stays.",
    },
    "sigma": {
        "minimum": 0, "maximum": MOST_SIGMA, "description": "Every sigma is this much at least.",
    },
}  # fmt: skip
"""Additions for the fields of all corrections. A name means the same in each kind."""

SEED: Final = {
    "ladder": ID,
    "round_id": ID | {"description": "Of your choice, as a round's is."},
    "at": TIME | {"description": "From when on the rating counts."},
    "source": {"description": "For people: it is stored, and changes nothing."},
    "event_type": CORRECTION["event_type"],
    "players": {"minItems": 1, "maxItems": MOST_PLAYERS},
    "player": ID,
    "mu": {"description": "What mu becomes. Left out: it stays."},
    "sigma": {"exclusiveMinimum": 0, "description": "What sigma becomes at least."},
}
"""Additions for the fields of seeds and resets."""
SEEDED_PLAYER: Final = {
    "player": ID,
    "mu": {"description": "On the ladder's scale."},
    "sigma": {
        "exclusiveMinimum": 0, "description": "At most a newcomer's; null: a newcomer's.",
    },
    "rounds": {
        "minimum": 1, "maximum": MOST_SEEDED_ROUNDS,
        "description": "How many rounds stand behind the rating.",
    },
}  # fmt: skip

# No tombstone deletes a player's old event from the old partition: a subscriber that reads it after
# the new event would lose the player.
CHANGED: Final = {
    "round_id": {"description": "After a correction that of the corrected round, if it is one's."},
    "rank": {"description": "Null for who did not finish, and after a correction."},
    "performance": {"description": "Null after a correction, and only then."},
    "rounds": {
        "description": "How many of the player's rounds on this ladder count by now. It falls when "
        "a correction takes rounds away."
    },
    "offset": {
        "description": "In round-completed, of the round or of the correction. A table of ratings "
        "keeps a player's event with the greatest offset on each ladder, whatever comes last: "
        "after shards were added, older events stay in another partition."
    },
    "season": {"description": "The ladder's season. Left out if none was started."},
    "correction": {"description": "Why the rating changed without a round. Left out after one."},
}
CAUSE: Final = {
    "cause": {"description": f"Its kind: {', '.join((*KINDS, *SEEDS))}, or {LOG_LOST}."},
    "offset": {"description": "Its own, in round-completed."},
    "round_id": {"description": "Of the corrected round. Left out if it is not about one."},
}

HEADERS: Final = {
    "ce_specversion": "1.0",
    "ce_id": "The event's id; of a rejection topic:partition:offset of its source.",
    "ce_type": "The topic's name, without a prefix.",
    "ce_source": f"{SOURCE}, or whoever reports.",
    "ce_time": "When the round was completed, or the rejected record arrived.",
}
TRACE: Final = {
    record.PARENT: "W3C trace context: as the round carried it, on to all that comes of it.",
    record.STATE: "Of vendors on its way, in printable ASCII.",
}
LONGEST: Final = {
    record.PARENT: record.PARENT_LENGTH,
    record.STATE: record.STATE_LENGTH,
}
REJECTED: Final = {
    "error-code": "Why, of a fixed list.",
    "error": "Why, in words, with the place.",
    "source-topic": "Where it came from.",
    "source-partition": "Its partition, in decimal.",
    "source-offset": "Its offset, in decimal.",
    DECIDED_OFFSET: "Of a batched correction: the offset of its `corrections-applied`.",
    "original-bytes": "Its size where not all of it is here; or `unknown`.",
}

BY_LADDER: Final = (
    "The ladder, so that its rounds and corrections stay in order; partitioned by murmur2."
)
OF_SEASONS: Final[dict[str, type[msgspec.Struct]]] = {
    name: kind for kind, name in season_ended.KINDS.items()
}
"""The messages about past seasons, by their names."""
TYPES: Final = [
    events.RoundCompleted, *KINDS.values(), *SEEDS.values(), events.RatingChanged,
    *OF_SEASONS.values(),
]  # fmt: skip
CHANNELS: Final = {
    events.ROUND_COMPLETED: ("receive", "delete", [events.ROUND_COMPLETED, *KINDS, *SEEDS]),
    events.RATING_CHANGED: ("send", "compact", [events.RATING_CHANGED]),
    events.ROUND_REJECTED: ("send", "delete", [events.ROUND_REJECTED]),
    season_ended.SEASON_ENDED: ("send", "delete", list(OF_SEASONS)),
}
"""By topic: what the service does there, the clean-up policy, and the names of its messages."""

EXAMPLES: Final[dict[str, Json]] = {
    "round-voided": {"ladder": "ranked-eu", "round_id": "r-81f3", "reason": "server crash"},
    "round-amended": {
        "ladder": "ranked-eu", "round_id": "r-81f3", "reason": "ann was offside",
        "standings": [{"player": "bob", "rank": 1}, {"player": "ann", "rank": 2}],
    },
    "player-removed": {
        "ladder": "ranked-eu", "player": "eve", "from": "2026-11-01T00:00:00Z",
        "until": "2026-11-20T00:00:00Z", "reason": "aimbot", "batched": True,
    },
    "player-merged": {"ladder": "ranked-eu", "player": "ann-2", "into": "ann"},
    "season-started": {"ladder": "ranked-eu", "season": 2, "keep": 0.5, "sigma": 200.0},
    "corrections-applied": {"ladder": "ranked-eu"},
    "players-seeded": {
        "ladder": "ranked-eu", "round_id": "import-1", "at": "2026-11-20T00:00:00Z",
        "source": "the game's own table",
        "players": [{"player": "ann", "mu": 1620.0, "sigma": 70.0, "rounds": 240},
                    {"player": "bob", "mu": 1480.0}],
    },
    "player-reset": {
        "ladder": "ranked-eu", "round_id": "reset-ann", "at": "2026-11-21T00:00:00Z",
        "player": "ann", "sigma": 200.0,
    },
}  # fmt: skip
"""An example of each kind of message."""


def schemas() -> Json:
    """The schemas of all types, with the additions."""
    _, found = msgspec.json.schema_components(TYPES, ref_template=SCHEMAS + "{name}")
    _refine(found["RoundCompleted"], ROUND)
    _refine(found["RatingChanged"], CHANGED)
    _refine(found["CorrectionCause"], CAUSE)
    _refine(found["SeededPlayer"], SEEDED_PLAYER)
    for given in SEEDS.values():
        own = found[given.__name__]
        _refine(own, {name: SEED[name] for name in own["properties"]})
    for kind in OF_SEASONS.values():
        _refine(found[kind.__name__], {})
    for entry in ("Entry", "StrictEntry"):
        _refine(found[entry], ENTRY)
        found[entry]["allOf"] = [{"anyOf": [RANKED, PLAYED]}, {"oneOf": [ALONE, TOGETHER]}]
    for kind in KINDS.values():
        own = found[kind.__name__]
        _refine(own, {name: CORRECTION[name] for name in own["properties"]})
    return found


def _refine(schema: Json, additions: Json) -> None:
    for name, addition in additions.items():
        property_schema = schema["properties"][name]
        # If null is allowed, too, the addition is for the other type. A struct gets none.
        others = (
            each for each in property_schema.get("anyOf", ()) if each.get("type", "null") != "null"
        )
        next(others, property_schema).update(addition)
    schema["description"] = " ".join(schema["description"].split())


def _headers(texts: dict[str, str], required: bool, content_types: list[str]) -> Json:
    properties: Json = {"content-type": {"type": "string", "enum": content_types}}
    for name, text in (texts | TRACE).items():
        properties[name] = {"type": "string", "description": text}
    if "error-code" in texts:
        del properties["content-type"]["enum"]
        properties["content-type"]["description"] = "That of the record, as it was."
        properties["error-code"]["enum"] = list(REJECTIONS)
    for name in LONGEST:
        properties[name]["maxLength"] = LONGEST[name]
    properties[record.PARENT]["pattern"] = record.VALID_PARENT
    optional = {"original-bytes", DECIDED_OFFSET, *TRACE}
    schema: Json = {"type": "object", "properties": properties}
    return schema | ({"required": [n for n in properties if n not in optional]} if required else {})


def _message(name: str, summary: str, headers: Json, payload: Json, key: str) -> Json:
    return {
        "name": name,
        "summary": summary,
        "contentType": events.JSON,
        "headers": headers,
        "payload": payload,
        "bindings": {"kafka": {"key": {"type": "string", "description": key}}},
    }


def _correction(name: str, kind: type[Correction | PlayersSeeded | PlayerReset]) -> Json:
    headers = _headers(HEADERS, False, [events.JSON, events.MSGPACK])
    headers["properties"] |= {EVENT_TYPE: {"type": "string", "const": name}}
    headers["required"] = [EVENT_TYPE]
    summary = " ".join((kind.__doc__ or "").split())
    message = _message(name, summary, headers, {"$ref": f"{SCHEMAS}{kind.__name__}"}, BY_LADDER)
    return message | {"examples": [{"headers": {EVENT_TYPE: name}, "payload": EXAMPLES[name]}]}


def _of_season(name: str, kind: type[msgspec.Struct]) -> Json:
    key = {Standing: "ladder:season:player", SeasonKept: "ladder:season"}
    key_text = key.get(kind, "ladder:season:page:number")
    return _message(
        name, " ".join((kind.__doc__ or "").split()), _headers(HEADERS, True, [events.JSON]),
        {"$ref": f"{SCHEMAS}{kind.__name__}"},
        f"{key_text}, each part percent-encoded for : % {{ }}; a ladder is in one partition.",
    )  # fmt: skip


def messages() -> Json:
    """The messages of all public topics."""
    both = [events.JSON, events.MSGPACK]
    of_round = _headers(HEADERS, False, both)
    of_round["properties"] |= {
        EVENT_TYPE: {"type": "string", "const": corrections.ROUND, "description": "Or without it."}
    }
    return {
        events.ROUND_COMPLETED: _message(
            events.ROUND_COMPLETED, "A round that has ended.", of_round,
            {"$ref": f"{SCHEMAS}RoundCompleted"}, BY_LADDER,
        ),
        **{name: _correction(name, kind) for name, kind in {**KINDS, **SEEDS}.items()},
        events.RATING_CHANGED: _message(
            events.RATING_CHANGED, "A player's rating after one round, or after a correction.",
            _headers(HEADERS, True, [events.JSON]), {"$ref": f"{SCHEMAS}RatingChanged"},
            "ladder:player, each percent-encoded for : % { }; on partition murmur2(player).",
        ),
        events.ROUND_REJECTED: _message(
            events.ROUND_REJECTED, "A record of round-completed that cannot be rated: its bytes.",
            _headers(HEADERS | REJECTED, True, both), {}, "That of the record, as it was.",
        ),
        **{name: _of_season(name, kind) for name, kind in OF_SEASONS.items()},
    }  # fmt: skip


def _camel(name: str) -> str:
    head, *rest = name.split("-")
    return head + "".join(map(str.capitalize, rest))


def document() -> Json:
    """The whole document."""
    channels = {
        _camel(topic): {
            "address": topic,
            "messages": {
                _camel(name): {"$ref": f"#/components/messages/{_camel(name)}"} for name in names
            },
            "bindings": {"kafka": {"topicConfiguration": {"cleanup.policy": [policy]}}},
        }
        for topic, (_, policy, names) in CHANNELS.items()
    }
    operations = {
        f"{verb}{_camel(topic)[:1].upper()}{_camel(topic)[1:]}": {
            "action": verb,
            "channel": {"$ref": f"#/channels/{_camel(topic)}"},
        }
        for topic, (verb, _, _) in CHANNELS.items()
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "stream-rater",
            "version": VERSION,
            "description": "Rounds, their corrections and seeds in, ratings out. Written by "
            "`make contract`. Events change by addition only. A prefix may stand before each "
            "address. performance-estimated, between the two stages, is internal.",
        },
        "defaultContentType": events.JSON,
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {_camel(name): message for name, message in messages().items()},
            "schemas": schemas(),
        },
    }


class _Plain(yaml.SafeDumper):
    """Writes no anchors: what occurs twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def text() -> str:
    """The document as YAML."""
    return yaml.dump(document(), Dumper=_Plain, sort_keys=False, width=96, allow_unicode=True)


def main() -> int:
    """Write the document. Returns 0."""
    DOCUMENT.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
