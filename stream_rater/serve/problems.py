"""The errors of the API, each with a code, an HTTP status and a title."""

from typing import NamedTuple

import msgspec

from stream_rater.contract.record import RecordPlace
from stream_rater.serve.bodies import Problem

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:stream-rater:problem:"  # The beginning of a problem's type; its code follows.


class ProblemKind(NamedTuple):
    """The HTTP status and the title of the errors that share a code."""

    status: int
    title: str


KINDS = {
    "bad-request": ProblemKind(400, "The request cannot be understood"),
    "bad-cursor": ProblemKind(400, "Not a cursor of this API"),
    "bad-event-id": ProblemKind(400, "Not an event id of this API"),
    "unauthorized": ProblemKind(401, "The token is missing or wrong"),
    "writing-off": ProblemKind(403, "Writing is switched off"),
    "foreign-page": ProblemKind(403, "A page of another site may not ask"),
    "read-only": ProblemKind(403, "The token does not allow writing"),
    "not-found": ProblemKind(404, "No such path"),
    "unknown-ladder": ProblemKind(404, "No such ladder"),
    "unknown-player": ProblemKind(404, "No such player"),
    "unknown-round": ProblemKind(404, "No such round"),
    "unknown-season": ProblemKind(404, "No standings of this season are kept"),
    "not-listed": ProblemKind(404, "The player is not on the leaderboard"),
    "other-content": ProblemKind(409, "The round id stands for another content"),
    "method-not-allowed": ProblemKind(405, "The path has no such method"),
    "body-too-slow": ProblemKind(408, "The body did not arrive in time"),
    "body-too-large": ProblemKind(413, "The body is too large"),
    "compressed-body": ProblemKind(415, "Compressed bodies are not read"),
    "invalid": ProblemKind(422, "The request is not valid"),
    "too-many-requests": ProblemKind(429, "Too many requests"),
    "internal": ProblemKind(500, "An error of the server"),
    "not-ready": ProblemKind(503, "The index is not complete"),
    "busy": ProblemKind(503, "Too many requests at the same time"),
    "index-unavailable": ProblemKind(503, "Redis does not answer"),
    "no-beliefs": ProblemKind(503, "The workers' beliefs cannot be read"),
    "too-many-followers": ProblemKind(503, "Too many clients follow changes"),
    "log-unavailable": ProblemKind(503, "Kafka does not answer"),
    "not-acknowledged": ProblemKind(503, "It is not known to be stored"),
    "not-yet": ProblemKind(503, "The index does not include it yet"),
}
"""The kinds of errors by their codes."""

REFUSED_RECORD = ProblemKind(422, "The round or the correction is not valid")
"""The kind of the errors whose codes are those of rejections (`contract.errors.REJECTIONS`)."""

RETRY_AFTER_S = 1
"""The seconds after which a client may ask again after an answer with status 503. It is the value
of the header Retry-After unless another one is given."""


class Refused(Exception):
    """The request is answered with an error, as the problem of RFC 9457 in `problem`."""

    def __init__(
        self, code: str, detail: str, place: str | None = None, retry_after_s: int | None = None,
        kind: ProblemKind | None = None, at: RecordPlace | None = None,
    ) -> None:  # fmt: skip
        """`kind` is that of the code, unless it is given. `at` is where the round stands."""
        super().__init__(detail)
        self.at, kind = at, kind or KINDS[code]
        self.problem = Problem(
            type=TYPE + code, title=kind.title, status=kind.status, code=code, detail=detail,
            place=place, **(at._asdict() if at else {}),
        )  # fmt: skip
        self.headers: dict[str, str] = {}
        if kind.status == 503 or retry_after_s is not None:
            self.headers["Retry-After"] = str(retry_after_s or RETRY_AFTER_S)
        if kind.status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"

    @property
    def body(self) -> bytes:
        """The problem, encoded as JSON."""
        return msgspec.json.encode(self.problem)


def refused_record(code: str, detail: str, place: str | None) -> Refused:
    """The error for a round or a correction that is not valid, by the code of its rejection."""
    return Refused(code, detail, place, kind=REFUSED_RECORD)
