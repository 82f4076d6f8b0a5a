"""`stream-rater serve`: the index and the API over it."""

from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import service_ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.errors import CannotGoOn
from stream_rater.runtime.failures import named_failures
from stream_rater.serve.service import Serve


def serve(settings: Settings) -> None:
    """Answer until SIGTERM or SIGINT."""
    ladders = service_ladders(settings)
    with named_failures():
        try:
            service = Serve(settings, ladders)
        except BadConfiguration:
            raise
        except (OSError, ValueError) as error:
            raise BadConfiguration(
                f"serve {settings.serve!r}: {error}: set {PREFIX}SERVE to another host:port; port "
                "0 picks a free one"
            ) from None
        try:
            service.run()
        except CannotGoOn as error:
            raise Failed(str(error)) from None
