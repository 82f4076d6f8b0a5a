"""`make contract`: the events as an AsyncAPI 3 document, deploy/asyncapi.yaml.

The schemas come from the types in `stream_rater.contract.events`, which the service decodes and
encodes with. `stream_rater.rounds.validation` has further rules; those that JSON Schema can express
are added here. A test compares the two.
"""

import re
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from stream_rater.adapters.envelopes import SOURCE
from stream_rater.config import Limits
from stream_rater.contract import events, tracecontext
from stream_rater.contract.events import MAX_ID_BYTES, MAX_RANK
from stream_rater.rounds.reported import MAX_TIME_LENGTH
from stream_rater.rounds.validation import CODES, LEAST_CEILING, LEAST_SHARE, MIN_ENTRIES

DOCUMENT: Final = Path(__file__).with_name("asyncapi.yaml")
SCHEMAS: Final = "#/components/schemas/"
VERSION: Final = "1.1.0"
"""Of the events: raised in the middle by an addition, and there is nothing else."""

Json = dict[str, Any]

ID: Final[Json] = {"minLength": 1, "maxLength": MAX_ID_BYTES}
"""At most so many bytes of UTF-8; as many characters, where they are ASCII."""
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
    "dnf": {"description": "Did not finish: worse than all who did."},
    "team": {"minItems": 1, "uniqueItems": True, "items": {"type": "string", **ID}},
    "shares": {
        "description": "The part of the round that each member played.",
        "items": {"type": "number", "minimum": LEAST_SHARE, "maximum": 1},
    },
}

# No tombstone deletes a player's old event from the old partition: a subscriber that reads it after
# the new event would lose the player.
CHANGED: Final = {
    "rounds": {
        "description": "How many of the player's rounds on this ladder are rated by now. A table "
        "of ratings keeps a player's event with the largest number, whatever comes last: after "
        "shards were added, older events stay in another partition."
    },
}

HEADERS: Final = {
    "ce_specversion": "1.0",
    "ce_id": "The event's id; of a rejection topic:partition:offset of its source.",
    "ce_type": "The topic's name, without a prefix.",
    "ce_source": f"{SOURCE}, or whoever reports.",
    "ce_time": "When the round was completed, or the rejected record arrived.",
}
TRACE: Final = {
    tracecontext.PARENT: "W3C trace context: as the round carried it, on to all that comes of it.",
    tracecontext.STATE: "Of vendors on its way, in printable ASCII.",
}
LONGEST: Final = {
    tracecontext.PARENT: tracecontext.PARENT_LENGTH,
    tracecontext.STATE: tracecontext.STATE_LENGTH,
}
REJECTED: Final = {
    "error-code": "Why, of a fixed list.",
    "error": "Why, in words, with the place.",
    "source-topic": "Where it came from.",
    "source-partition": "Its partition, in decimal.",
    "source-offset": "Its offset, in decimal.",
    "original-bytes": "Its size where not all of it is here; or `unknown`.",
}


def schemas() -> Json:
    """What the types say, then what is added."""
    _, found = msgspec.json.schema_components(
        [events.RoundCompleted, events.RatingChanged], ref_template=SCHEMAS + "{name}"
    )
    _refine(found["RoundCompleted"], ROUND)
    _refine(found["Entry"], ENTRY)
    _refine(found["RatingChanged"], CHANGED)
    found["Entry"]["allOf"] = [{"anyOf": [RANKED, PLAYED]}, {"oneOf": [ALONE, TOGETHER]}]
    return found


def _refine(schema: Json, additions: Json) -> None:
    for name, addition in additions.items():
        held = schema["properties"][name]
        # Where null is allowed, too, the addition is about the other.
        target = next((each for each in held.get("anyOf", ()) if each["type"] != "null"), held)
        target.update(addition)
    schema["description"] = re.sub(r" Not validated: .*", "", schema["description"])


def _headers(told: dict[str, str], required: bool, content_types: list[str]) -> Json:
    properties: Json = {"content-type": {"type": "string", "enum": content_types}}
    for name, text in (told | TRACE).items():
        properties[name] = {"type": "string", "description": text}
    if "error-code" in told:
        del properties["content-type"]["enum"]
        properties["content-type"]["description"] = "That of the record, as it was."
        properties["error-code"]["enum"] = list(CODES)
    for name in LONGEST:
        properties[name]["maxLength"] = LONGEST[name]
    properties[tracecontext.PARENT]["pattern"] = tracecontext.VALID_PARENT
    optional = {"original-bytes", *TRACE}
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


def messages() -> Json:
    """One for each public topic."""
    both = [events.JSON, events.MSGPACK]
    return {
        events.ROUND_COMPLETED: _message(
            events.ROUND_COMPLETED, "A round that has ended.", _headers(HEADERS, False, both),
            {"$ref": f"{SCHEMAS}RoundCompleted"},
            "The ladder, so that its rounds stay in order; partitioned by murmur2.",
        ),
        events.RATING_CHANGED: _message(
            events.RATING_CHANGED, "A player's rating after one round.",
            _headers(HEADERS, True, [events.JSON]), {"$ref": f"{SCHEMAS}RatingChanged"},
            "ladder:player, each percent-encoded for : % { }; on partition murmur2(player).",
        ),
        events.ROUND_REJECTED: _message(
            events.ROUND_REJECTED, "A record of round-completed that cannot be rated: its bytes.",
            _headers(HEADERS | REJECTED, True, both), {}, "That of the record, as it was.",
        ),
    }  # fmt: skip


def _camel(name: str) -> str:
    head, *rest = name.split("-")
    return head + "".join(map(str.capitalize, rest))


def document() -> Json:
    """The whole of it."""
    names = messages()
    policies = {events.ROUND_COMPLETED: ["delete"], events.RATING_CHANGED: ["compact"]}
    channels = {
        _camel(name): {
            "address": name,
            "messages": {_camel(name): {"$ref": f"#/components/messages/{_camel(name)}"}},
            "bindings": {
                "kafka": {"topicConfiguration": {"cleanup.policy": policies.get(name, ["delete"])}}
            },
        }
        for name in names
    }
    operations = {
        f"{verb}{_camel(name)[:1].upper()}{_camel(name)[1:]}": {
            "action": verb,
            "channel": {"$ref": f"#/channels/{_camel(name)}"},
        }
        for name, verb in zip(names, ("receive", "send", "send"), strict=True)
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "stream-rater",
            "version": VERSION,
            "description": "Rounds in, ratings out. Written by `make contract`. Events change by "
            "addition only. A prefix may stand before each address. performance-estimated, "
            "between the two stages, is internal.",
        },
        "defaultContentType": events.JSON,
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {_camel(name): message for name, message in names.items()},
            "schemas": schemas(),
        },
    }


class _Plain(yaml.SafeDumper):
    """Without anchors: what is said twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def text() -> str:
    """As YAML."""
    return yaml.dump(document(), Dumper=_Plain, sort_keys=False, width=96, allow_unicode=True)


def main() -> int:
    """Write the document."""
    DOCUMENT.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
