"""The errors that end a command in one line."""


class BadConfiguration(ValueError):
    """A configuration that makes no sense: one line, with the file and the place in it."""


class Failed(Exception):
    """The work failed: one line says why."""


class OtherBits(Exception):
    """This machine computes ratings that differ from those of the release's test vector."""
