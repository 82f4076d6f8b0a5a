"""Many values in one test, which goes on behind a failure and names all values that fail."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def sweep(
    names: str, values: Iterable[Any], ids: Callable[[Any], object] = repr
) -> Callable[[Test], Test]:
    """The test for each of these values, as by pytest's `parametrize`, but as a single case.

    All values share the test's fixtures. Below `given`, they share each example, too.
    """
    arguments, cases = [each.strip() for each in names.split(",")], list(values)

    def decorate(test: Test) -> Test:
        whole = inspect.signature(test)
        others = [each for each in whole.parameters.values() if each.name not in arguments]
        left = whole.replace(parameters=others)

        @functools.wraps(test)
        def swept(*args: Any, **kwargs: Any) -> None:
            given, failures = left.bind(*args, **kwargs).arguments, []
            for value in cases:
                own = dict(zip(arguments, value if len(arguments) > 1 else [value], strict=True))
                try:
                    test(**given, **own)
                except Exception as failure:
                    failure.add_note(f"{names}: {ids(value)}")
                    failures.append(failure)
            if failures:
                found = ", ".join(each.__notes__[-1] for each in failures)
                raise ExceptionGroup(f"{len(failures)} of {len(cases)} fail: {found}", failures)

        swept.__signature__ = left  # type: ignore[attr-defined]
        return swept

    return decorate
