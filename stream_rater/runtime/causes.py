"""Whose trouble it is that made a role begin anew, by what the clients say."""

import re

CAUSES = ("kafka", "redis", "tls", "denied")
"""Of troubles: whose failure made a role begin anew. TLS: a handshake of either's, not accepted by
one side. Denied: either's, for a wrong password or a missing right."""

ADDRESS = re.compile(r"\w*ssl://\S+")
"""Before whatever librdkafka tells of a broker that it talks to by TLS."""
TLS = re.compile(r"certificate|ssl alert|(?:\[ssl: |ssl routines::?)(?!unexpected[_ ]eof)")
"""Not so an end of the connection, which OpenSSL tells as an error of its own, too."""
DENIED = re.compile(
    r"authenticat|authoriz|username-password|no permissions|\b(?:noauth|noperm|wrongpass)\b"
)


def cause_of(reason: str) -> str:
    """Whose trouble it is, by the words of its reason."""
    told = ADDRESS.sub("", reason.lower())
    if TLS.search(told):
        return "tls"
    if DENIED.search(told):
        return "denied"
    return "redis" if reason.startswith("redis") else "kafka"
