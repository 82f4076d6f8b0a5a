"""Runs scripts that only read: by EVAL_RO, or by EVAL on a server that does not know EVAL_RO."""

from typing import Any

from stream_rater.adapters.redis.calls import ABSENT
from stream_rater.adapters.redis.connection import AsyncClient
from stream_rater.contract.errors import StoreTrouble


class Evaluation:
    """Runs scripts on one client. Redis has EVAL_RO since release 7."""

    def __init__(self, redis: AsyncClient) -> None:
        self._redis = redis
        self._command = "EVAL_RO"

    async def __call__(self, script: str, *given: Any) -> Any:
        """The answer of a script; `given`: the number of its keys, the keys, and the arguments.
        Raises StoreTrouble or Denied."""
        if self._command == "EVAL_RO":
            try:
                return await self._redis.ask("EVAL_RO", script, *given)
            except StoreTrouble as trouble:
                if not any(each in str(trouble).lower() for each in ABSENT):
                    raise
                self._command = "EVAL"
        return await self._redis.ask("EVAL", script, *given)
