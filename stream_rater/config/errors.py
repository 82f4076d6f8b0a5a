"""The errors that end a command in one line."""


class BadConfiguration(ValueError):
    """A configuration is invalid. The text is one line with the file and the place in it."""


class Failed(Exception):
    """The work failed. The text is one line with the reason."""


class TrialsFailed(Exception):
    """The executor of a search cannot run its trials. The text is one line, with the cure."""


class ArithmeticMismatch(Exception):
    """This machine computes ratings that differ from those of the release's test vector."""
