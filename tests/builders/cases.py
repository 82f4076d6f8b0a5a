"""Many cases in one test, which continues after a failure and names all cases that fail."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def cases(
    names: str | Sequence[str], values: Iterable[Any], ids: Callable[[Any], object] = repr
) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, but all cases are one test and share its fixtures."""
    wanted = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
    all_values = list(values)

    def decorate(test: Test) -> Test:
        whole = inspect.signature(test)
        others = [each for each in whole.parameters.values() if each.name not in wanted]
        left = whole.replace(parameters=others)

        @functools.wraps(test)
        def check(*args: Any, **kwargs: Any) -> None:
            given, failures = left.bind(*args, **kwargs).arguments, list[Exception]()
            for value in all_values:
                own = dict(zip(wanted, value if len(wanted) > 1 else [value], strict=True))
                try:
                    test(**given, **own)
                except (Exception, pytest.fail.Exception) as found:
                    failure = found if isinstance(found, Exception) else AssertionError(str(found))
                    failure.add_note(f"{', '.join(wanted)}: {ids(value)}")
                    failures.append(failure)
            if failures:
                listed = "\n".join(each.__notes__[-1] for each in failures)
                title = f"{len(failures)} of {len(all_values)} cases fail:\n{listed}\n"
                raise ExceptionGroup(title, failures)

        check.__signature__ = left  # type: ignore[attr-defined]
        return check

    return decorate


def tag(config: Any) -> str:
    """Names a case by the tag of its struct: a rating system."""
    return str(config.__struct_config__.tag)
