"""What one lobby crosses in memory: files, functions and forms of the engine.

`python -m tests.one_lobby` plays a lobby through both state machines, with the kernels as plain
Python, and prints what it crossed. An argument names another road (see `ROADS`): a correction, say.
Each road is taken twice: the first time warms up, the second is measured.

A *form* is one of our own types that carries data from file to file: functions of at least two
files take or return it, its object was made for this lobby, and it holds bytes, arrays, columns or
another object of ours. Effects, parameters, columns and types of `adapters` are not counted."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = str(ROOT / "stream_rater") + os.sep
NAMES = ("ann", "bob", "cy", "dee", "eve")
NO_FORMS = ("stream_rater.columns.", "stream_rater.adapters.")
ARRIVED_S = 1.8e9  # When Kafka received the rounds: after they were completed.


def crossed(road: str = "lobby") -> dict[str, list[str]]:
    """The names of the files, functions and forms, measured in a process of its own."""
    command = [sys.executable, "-m", "tests.one_lobby", road]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    found: dict[str, list[str]] = json.loads(printed)
    return found


class Profile:
    """Records which of our functions run, and which of our objects they take and return."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()
        self.seen: dict[type, set[str]] = {}  # Files whose functions take or give a type's object.
        self.objects: dict[int, object] = {}  # By id(); kept alive, so that no id is reused.

    def __enter__(self) -> "Profile":
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"):
            return  # a comprehension counts as part of its function
        if event == "call":
            self.codes.add(code)
            count = code.co_argcount + code.co_kwonlyargcount
            values = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
        elif event == "return":
            values = [result]
        else:
            return
        for value in values:
            for each in _parts_of(value):
                self.objects[id(each)] = each
                self.seen.setdefault(type(each), set()).add(code.co_filename)


def _parts_of(value: object) -> Iterator[object]:
    """The objects of our types in a value, and in the containers of Python that it is made of."""
    if type(value).__module__.startswith("stream_rater."):
        yield value
    if isinstance(value, dict):
        for each in value.values():
            yield from _parts_of(each)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _parts_of(each)


def _fields(value: object) -> Iterator[object]:
    kind = type(value)
    names = [*getattr(kind, "__struct_fields__", ()), *getattr(kind, "_fields", ())]
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    yield from (getattr(value, name, None) for name in names)
    yield from vars(value).values() if hasattr(value, "__dict__") else ()


def _carries(value: object, data: tuple[type, ...]) -> bool:
    """Whether an object holds bytes, arrays or columns, by itself or in a container."""
    queue = list(_fields(value))
    while queue:
        each = queue.pop()
        if isinstance(each, data) or any(True for _ in _parts_of(each)):
            return True
        if isinstance(each, list | tuple):
            queue += each
        elif isinstance(each, dict):
            queue += each.values()
    return False


PLAIN: dict[str, Any] = {"_fused": lambda a, b, c: a * b + c, "_prefetch": lambda *_: None}
"""Python for our LLVM intrinsics, by the name of the function that generates their code."""


def use_plain_python() -> None:
    """From now on no kernel is compiled: the decorators return Python functions."""
    import numba.extending
    import numpy as np

    from stream_rater.columns import kernels

    np.seterr(over="ignore")  # hashes wrap around
    patched: Any = kernels
    patched.kernel = _plain
    patched.inlined = patched.giving = lambda function: function
    patched = numba.extending
    patched.intrinsic = lambda function: PLAIN[function.__name__]
    from stream_rater.rating import model

    model.HEADER = np.dtype((np.record, model.HEADER))  # its fields are attributes in kernels


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with compiled code's conversions: it takes int for NumPy's, returns float."""
    import numpy as np

    def call(*arguments: Any) -> Any:
        given = [int(x) if isinstance(x, np.signedinteger) else x for x in arguments]
        result = function(*given)
        return float(result) if isinstance(result, np.float64) else result

    return call


def measure(road: str) -> dict[str, list[str]]:
    """Take a road twice in this process. Returns what the second time crossed, as `crossed`."""
    use_plain_python()
    import numpy as np

    from stream_rater.columns.player_column import ColumnSequence
    from stream_rater.pipeline.ports import Effect, Polled
    from stream_rater.rating.model import Variances

    before, profile = Profile(), Profile()
    ROADS[road](before, profile)
    made = [x for at, x in profile.objects.items() if at not in before.objects]
    forms = {
        type(each).__name__
        for each in made
        if len(profile.seen[type(each)]) > 1
        and not isinstance(each, Effect | Polled | Variances | BaseException | type)
        and not type(each).__module__.startswith(NO_FORMS)
        and _carries(each, (bytes, np.ndarray, ColumnSequence))
    }
    return {
        "files": sorted({c.co_filename.removeprefix(PACKAGE) for c in profile.codes}),
        "functions": sorted(map(_name, profile.codes)),
        "forms": sorted(forms),
    }


# --- the roads -----------------------------------------------------------------------------------


def a_lobby(before: Profile, profile: Profile) -> None:
    """A round goes through both state machines."""
    engine = _engine()
    for each in (before, profile):
        with each:
            _play(engine, "first" if each is before else "second")


def a_correction(before: Profile, profile: Profile) -> None:
    """A round is voided."""
    engine = _engine()
    for name in ("first", "second", "third"):
        _play(engine, name)
    for each, name in ((before, "first"), (profile, "second")):
        with each:
            _send(engine, {"round_id": name}, "round-voided")


def a_seed(before: Profile, profile: Profile) -> None:
    """A seed gives players ratings."""
    engine = _engine()
    for each, players in ((before, ("fay", "gus")), (profile, ("hal", "ivy"))):
        seeded = [{"player": name, "mu": 1600.0, "sigma": 100.0} for name in players]
        with each:
            _send(engine, {"round_id": players[0], "at": DAY, "players": seeded}, "players-seeded")


def a_post(before: Profile, profile: Profile) -> None:
    """A client posts a round to the API, which appends it to the log."""
    from tests.builders.doors import Client, DoorPlace

    async def send(client: Client) -> None:
        for each in (before, profile):
            body = _round("first" if each is before else "second")
            body["completed_at"] = "2026-05-01T00:00:00Z"  # before the time of the door's clock
            with each:
                answer = await client.post("/v1/ladders/eu/rounds", body)
            assert answer.status == 202, answer

    DoorPlace().play(send)


def a_question(before: Profile, profile: Profile) -> None:
    """A client looks up players whom the index knows."""
    from tempfile import TemporaryDirectory

    from stream_rater.config.ladders import ANY_LADDER
    from stream_rater.serve.questions import Questions
    from tests.builders.doors import NOTHING, Client, DoorPlace
    from tests.builders.indexes import Index, an_event

    with TemporaryDirectory() as folder:
        index = Index(Path(folder) / "index")
        index.apply([an_event(name, at, ladder="eu") for at, name in enumerate(NAMES)])
        ask = Questions(index.reader, ANY_LADDER, lambda: True, lambda: 0.0, NOTHING, lambda: 0.0)

        asked = {"players": list(NAMES)}

        async def look_up(client: Client) -> None:
            for each in (before, profile):
                with each:
                    answer = await client.post("/v1/ladders/eu/players:lookup", asked)
                assert answer.status == 200, answer

        DoorPlace(questions=ask).play(look_up)
        index.close()


ROADS: dict[str, Callable[[Profile, Profile], None]] = {
    "lobby": a_lobby, "correction": a_correction, "seed": a_seed, "post": a_post,
    "question": a_question,
}  # fmt: skip
DAY = "2026-11-20T20:15:05Z"


def _engine() -> Any:
    from stream_rater.runtime.engine import EmbeddedEngine

    return EmbeddedEngine()


def _play(engine: Any, round_id: str) -> None:
    _send(engine, _round(round_id))


def _round(round_id: str) -> dict[str, Any]:
    standings = [{"player": name, "rank": 1 + i} for i, name in enumerate(NAMES)]
    return {"round_id": round_id, "completed_at": DAY, "standings": standings}


def _send(engine: Any, fields: dict[str, Any], kind: str = "") -> None:
    """Let the engine rate a record; `kind` is its event type if it is no round."""
    more = {"event_type": kind} if kind else {}
    headers = [("event-type", kind.encode())] if kind else []
    value = json.dumps({"ladder": "eu", **more, **fields}).encode()
    engine.log.submit(0, value, headers, received_s=ARRIVED_S)
    engine.settle()


def _name(code: CodeType) -> str:
    return f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_qualname}:{code.co_firstlineno}"


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:] or ["lobby"]), indent=1))
