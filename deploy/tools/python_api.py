"""The text of docs/reference/python.md, from the sources, which it parses and never imports.

A part between `<!-- generated: python NAME -->` and `<!-- end -->` lists names of PARTS. The page
in the tree has a line for each name, and for each member of what is imported from `stream_rater`
itself: the call without types, and the first sentence of the docstring. The page of the site has
all of each docstring, with types.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import dedent
from typing import Final

from local.tools import ROOT

PACKAGE: Final = ROOT / "stream_rater"
PART: Final = re.compile(r"(<!-- generated: python ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
ANSWERS: Final = (
    "Belief", "RoundResult", "History", "RatedRows", "Players", "Leaderboard", "Prediction",
    "Calibration", "FileResult", "RefusedLines", "RefusedLine", "SeedResult", "Tuning",
    "Comparison",
)  # fmt: skip
PARTS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "ladder": {"library/ladder": ["Ladder"], "library/comparing": ["compare"]},
    "answers": {
        "library/results": ANSWERS, "evaluation/measures": ["Evaluation"],
        "library/tables": ["Columns"],
    },
    "errors": {
        "library/results": ["InvalidRound", "OtherLadder"],
        "rating/parameters": ["BadParameters"], "config/errors": ["MissingExtra", "TrialsFailed"],
    },
    "configuration": {
        "config/files": ["read_ladders", "read_rating", "read_settings"],
        "config/ladders": ["Ladders", "Ladder", "Change", "Limits"],
        "config/settings": ["Settings"],
    },
    "replay": {
        "replay/files": ["read_lines"],
        "replay/edited_log": ["records_of", "LogBatch", "LoggedRounds"],
        "replay/sequential": ["Replay", "RatedBatch"], "replay/rating_changes": ["changes_of"],
    },
}  # fmt: skip
"""By part of the page, and by module, the names that it lists."""

WITH_MEMBERS: Final = {"library/ladder", "library/results", "library/tables"}
"""The modules whose names have all members in the tree's page."""

Definition = ast.ClassDef | ast.FunctionDef
Member = tuple[str, Definition | ast.AnnAssign, str]
"""A name, what it is defined by, and its docstring."""


def written(page: str, *, whole: bool = False) -> str:
    """The page with its parts renewed. ValueError names what is missing in the sources or here."""
    listed = {name for part in PARTS.values() for names in part.values() for name in names}
    if left_out := _exported() - listed:
        raise ValueError(f"PARTS in python_api.py lacks {', '.join(sorted(left_out))}")

    def part(found: re.Match[str]) -> str:
        begin, name, end = found.groups()
        text = "\n\n".join(_module(*each, whole=whole) for each in PARTS[name].items())
        return f"{begin}\n{text}\n\n{end}"

    return PART.sub(part, page)


def _exported() -> set[str]:
    """What `stream_rater` exports."""
    for each in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body:
        match each:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return set(ast.literal_eval(value))
    raise ValueError("stream_rater/__init__.py has no __all__")


def _module(path: str, names: Sequence[str], *, whole: bool) -> str:
    """The names of a module, in this order."""
    tree = ast.parse((PACKAGE / f"{path}.py").read_text(encoding="utf-8"))
    found = {each.name: each for each in tree.body if isinstance(each, Definition)}
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"stream_rater/{path}.py has no {', '.join(missing)}")
    chosen = [found[name] for name in names]
    if whole:
        return "\n\n".join(_in_full(each, path.replace("/", ".")) for each in chosen)
    lines = "\n".join(line for each in chosen for line in _lines(each, path))
    return f"In `stream_rater.{path.replace('/', '.')}`:\n\n{lines}"


def _lines(definition: Definition, path: str) -> Iterator[str]:
    """A line for a name, with its fields, and one for each of its methods."""
    text = _first(ast.get_docstring(definition))
    if isinstance(definition, ast.FunctionDef):
        yield f"- `{_call(definition, typed=False)}`: {text}"
        return
    members = list(_members(definition)) if path in WITH_MEMBERS else []
    fields = ", ".join(f"`{name}`" for name, each, _ in members if isinstance(each, ast.AnnAssign))
    yield f"- `{definition.name}`: {text}{f' Fields: {fields}.' if fields else ''}"
    for name, each, docstring in members:
        if isinstance(each, ast.FunctionDef) and name != "later":
            call = name if _is_property(each) else _call(each, definition.name, typed=False)
            yield f"    - `{call}`: {_first(docstring)}"


def _in_full(definition: Definition, module: str) -> str:
    """A name under a heading, with all of its docstring and its members."""
    text = [f"### {definition.name}", f"In `stream_rater.{module}`."]
    if isinstance(definition, ast.FunctionDef):
        text.append(_code(_call(definition)))
    text.append(_as_markdown(ast.get_docstring(definition) or ""))
    for name, each, docstring in _members(definition):
        if isinstance(each, ast.AnnAssign):
            text.append(f"- `{name}: {ast.unparse(each.annotation)}`\n\n    {docstring}".rstrip())
        elif isinstance(each, ast.FunctionDef):
            call = f"{name}{_answer(each)}" if _is_property(each) else _call(each, definition.name)
            heading = definition.name if name == "__init__" else f"{definition.name}.{name}"
            text += [f"#### {heading}", _code(call), _as_markdown(docstring)]
    return "\n\n".join(each for each in text if each)


def _members(definition: Definition) -> Iterator[Member]:
    """The public fields and methods of a class that have a docstring or a type, in order."""
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    for each, after in zip(body, [*body[1:], None], strict=False):
        match each, after:
            case ast.AnnAssign(target=ast.Name(id=name)), _ if _is_field(name, each):
                match after:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        yield name, each, " ".join(text.split())
                    case _:
                        yield name, each, ""
            case ast.FunctionDef(name=name), _ if not name.startswith("_") or name == "__init__":
                if docstring := ast.get_docstring(each):
                    yield name, each, docstring


def _is_field(name: str, each: ast.AnnAssign) -> bool:
    return not name.startswith("_") and "ClassVar" not in ast.unparse(each.annotation)


def _is_property(each: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in each.decorator_list)


def _call(function: ast.FunctionDef, owner: str = "", *, typed: bool = True) -> str:
    """The call of a function or a method; the constructor has the name of its class."""
    given = function.args
    if not typed:
        for each in ast.walk(given):
            if isinstance(each, ast.arg):
                each.annotation = None
    words = ast.unparse(given)
    if owner:
        words = words.removeprefix("self").removeprefix("cls").removeprefix(", ")
    name = owner if function.name == "__init__" else function.name
    return f"{name}({words}){_answer(function) if typed else ''}"


def _answer(function: ast.FunctionDef) -> str:
    return f" -> {ast.unparse(function.returns)}" if function.returns else ""


def _code(call: str) -> str:
    if len(call) > 90:
        call = re.sub(r", (?=\*{0,2}\w+(:|,|=|\)))(?![^\[]*\])", ",\n    ", call)
    return f"```python\n{call}\n```"


def _first(docstring: str | None) -> str:
    """The first sentence, on one line."""
    paragraph = " ".join((docstring or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.]) (?=[A-Z`])", paragraph)[0]


def _as_markdown(docstring: str) -> str:
    """A docstring with its sections `Args:`, `Returns:` and `Raises:` as paragraphs and lists."""
    shown = []
    for block in re.split(r"\n\n", docstring):
        head, _, body = block.partition("\n")
        if head not in ("Args:", "Returns:", "Raises:", "Yields:"):
            shown.append(block)
            continue
        entries = re.sub(r"\n {4,}", " ", dedent(body))
        if head in ("Args:", "Raises:"):
            entries = re.sub(r"^([\w*, ]+): ", r"- `\1`: ", entries, flags=re.MULTILINE)
        shown.append(f"**{head.removesuffix(':')}**\n\n{entries}")
    return "\n\n".join(shown)
