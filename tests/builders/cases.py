"""Many cases in one test, which names all that fail at once."""

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest


def cases(names: str | Sequence[str], values: Collection[Any]) -> Callable[[Any], Any]:
    """Like `pytest.mark.parametrize`, but all cases are one test, and they share its fixtures."""
    wanted = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)

    def of(test: Callable[..., None]) -> Callable[..., None]:
        def check(**fixtures: Any) -> None:
            failed: list[str] = []
            for value in values:
                given = dict(zip(wanted, value if len(wanted) > 1 else [value], strict=True))
                try:
                    test(**fixtures, **given)
                except (AssertionError, pytest.fail.Exception) as error:
                    failed.append(f"{given}: {error}")
            assert not failed, "\n".join([f"{len(failed)} of {len(values)} cases:", *failed])

        given = inspect.signature(test)
        left = [each for name, each in given.parameters.items() if name not in wanted]
        check.__signature__ = given.replace(parameters=left)  # type: ignore[attr-defined]
        check.__name__, check.__doc__ = test.__name__, test.__doc__
        check.__module__, check.__qualname__ = test.__module__, test.__qualname__
        return check

    return of
