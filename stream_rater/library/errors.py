"""What a ladder refuses."""


class InvalidRound(ValueError):
    """A round that cannot be rated. The text is one line that begins with the place in the
    arguments. Nothing was changed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)  # both, so that it can be sent to another process
        self.code = code
        """One of the error codes of `round-rejected`."""

    def __str__(self) -> str:
        return str(self.args[1])


class OtherLadder(ValueError):
    """A file whose rounds are of another ladder, or of several. Nothing was changed."""
