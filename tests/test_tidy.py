"""The house rules that a machine can hold: sizes, layers, and nothing of one machine."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "stream_rater"
FOLDERS = (PACKAGE, "tests", "deploy", "docs", "helm", ".ci", ".github")
PYTHON = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))
OURS = [p for p in PYTHON if p.is_relative_to(ROOT / PACKAGE)]

MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_COLUMNS = 600, 70, 100

FLOORS = (
    ("contract",), ("columns",), ("rating",), ("config",), ("rounds",), ("replay",),
    ("tables",), ("pipeline", "evaluation"), ("library",), ("adapters", "index"), ("runtime",),
    ("places", "testing"), ("operations", "serve"), ("cli",), ("__main__", "__init__"),
)  # fmt: skip
"""What is right below the package, lowest first. Imports point down or stay in their room."""

FRONT = {"config", "evaluation", "library", "rating"}  # What `stream_rater` gets its names from.

CLIENTS = {"confluent_kafka", "redis", "hiredis"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def trees(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    """The package's files below these of its folders (below all, if none is named), parsed."""
    for path in OURS:
        if not folders or own(path) in folders:
            yield path, parsed(path)


def own(path: Path) -> str:
    """The part of the package a file belongs to: the folder or file right below it."""
    return path.relative_to(ROOT / PACKAGE).parts[0].removesuffix(".py")


@cache
def imports(tree: ast.Module) -> Sequence[str]:
    found = list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names]
    return found


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def modules_among(ours: set[str], tree: ast.Module) -> set[str]:
    """Which of our modules a file imports."""
    found = set(imports(tree))
    return (found | {full.rpartition(".")[0] for full in found}) & (ours - {PACKAGE})


def roots(tree: ast.Module) -> set[str]:
    return {module.split(".", 1)[0] for module in imports(tree)}


def test_lines_and_files_are_short() -> None:
    """Files have at most 600 lines of at most 100 columns."""
    texts = {path: path.read_text().splitlines() for path in PYTHON}
    long = [name(path) for path, lines in texts.items() if len(lines) > MAX_FILE_LINES]
    wide = [
        f"{name(path)}:{i}"
        for path, lines in texts.items()
        for i, line in enumerate(lines, 1)
        if len(line) > MAX_COLUMNS
    ]
    assert long + wide == []


def test_functions_are_short() -> None:
    """Functions have at most 70 lines."""
    long = [
        f"{name(path)}:{node.lineno} {node.name}"
        for path in PYTHON
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert long == []


def test_imports_point_down() -> None:
    """A room imports only rooms of lower floors; every room has its floor."""
    floor = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
    assert {own(path) for path, _ in trees()} == set(floor)
    upward = [
        f"{name(path)}: {module}"
        for path, tree in trees()
        for module in imports(tree)
        if module.startswith(f"{PACKAGE}.")
        and (room := module.split(".")[1]) != own(path)
        and (floor[room] >= floor[own(path)] or (own(path) == "__init__" and room not in FRONT))
    ]
    assert upward == []


def test_no_import_cycles() -> None:
    """No modules import each other in a circle, neither within a room nor for types alone."""
    ours = {module_of(path) for path in OURS}
    needs = {module_of(path): modules_among(ours, tree) for path, tree in trees()}
    tuple(TopologicalSorter(needs).static_order())  # raises CycleError, which names the circle


def test_imports_are_absolute() -> None:
    """Imports name modules in full, so that the tests above can read them."""
    relative = [name(p) for p, tree in trees() if any(m.startswith(".") for m in imports(tree))]
    assert relative == []


def test_only_adapters_know_clients() -> None:
    """confluent_kafka, redis and hiredis are imported in adapters/ and nowhere else."""
    others = {name(p) for p, tree in trees() if own(p) != "adapters" and roots(tree) & CLIENTS}
    assert others == set()


def test_places_hide_the_adapters() -> None:
    """Only these rooms import adapters, and only two files read the setting `data`."""
    inner = {"adapters", "places", "runtime"}
    others = {
        name(path)
        for path, tree in trees() if own(path) not in inner
        and any(each.startswith(f"{PACKAGE}.adapters") for each in imports(tree))
    }  # fmt: skip
    assert others == set()
    asking = {name(path) for path in OURS if "settings.data" in path.read_text()}
    assert asking == {f"{PACKAGE}/places/__init__.py", f"{PACKAGE}/cli/options.py"}


def test_rating_is_pure() -> None:
    """rating/ imports itself, numpy, numba with its llvmlite, msgspec and the standard library."""
    allowed = {PACKAGE, "numpy", "numba", "llvmlite", "msgspec", *sys.stdlib_module_names}
    foreign = {name(p): roots(tree) - allowed for p, tree in trees("rating")}
    assert {path: found for path, found in foreign.items() if found} == {}


def answers(path: Path) -> bool:
    """Whether a file of serve/ is of its pure half: neither HTTP, nor the index, nor the start."""
    return path.parent.name == "serve" and path.stem not in ("service", "standalone")


def test_state_machines_act_on_nothing() -> None:
    """Time, randomness and I/O come in as arguments, so that a seed replays a run."""
    acting = {"asyncio", "logging", "os", "random", "secrets", "socket", "subprocess"}
    acting |= {"threading", "time", "uuid"}
    pure = ("contract", "rating", "rounds", "pipeline")
    machines = [*trees(*pure), *(each for each in trees("serve") if answers(each[0]))]
    found = {name(p): roots(tree) & acting for p, tree in machines}
    assert {path: acts for path, acts in found.items() if acts} == {}


def test_the_judge_shares_no_code() -> None:
    """tests/judge imports, even indirectly, only itself, clients and the standard library."""
    known = {module_of(path): parsed(path) for path in PYTHON}
    allowed = {"numpy", "msgspec", "confluent_kafka", *sys.stdlib_module_names}
    reached, todo = set[str](), {each for each in known if each.startswith("tests.judge")}
    foreign = set()
    while todo:
        module = todo.pop()
        reached.add(module)
        for full in imports(known[module]):
            ours = {full, full.rpartition(".")[0]} & known.keys()
            todo |= ours - reached
            if not ours and full.split(".")[0] not in allowed:
                foreign.add(f"{module}: {full}")
    assert foreign == set()
    assert {each for each in reached if not each.startswith("tests.judge")} <= {"tests"}


def test_tests_with_servers_are_where_make_test_looks() -> None:
    """`make test` collects tests marked `integration` in these folders only."""
    folders = {ROOT / "tests" / "integration", ROOT / "tests" / "contract"}
    tests = [p for p in PYTHON if p.name.startswith("test_") and p.parent not in folders]
    marked = [
        name(path)
        for path in tests
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.integration"
    ]
    assert marked == []


def test_every_module_says_what_it_is() -> None:
    """A file with code in it opens with a docstring."""
    assert [name(p) for p, tree in trees() if tree.body and not ast.get_docstring(tree)] == []


def texts() -> list[Path]:
    """Every text file of the project that is not fetched or generated."""
    kinds = {"", ".cfg", ".env", ".in", ".ini", ".json", ".lock", ".lua", ".md", ".py", ".sh"}
    kinds |= {".toml", ".tpl", ".txt", ".xml", ".yaml", ".yml"}
    inside = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*")]
    return sorted(
        p
        for p in [*ROOT.iterdir(), *inside]
        if p.is_file() and p.name != ".git" and p.suffix in kinds and "__pycache__" not in p.parts
    )


MACHINE = re.compile(r"(?:^|[^a-z])/(?:work|farm|root)/|/home/[a-z]+/|/Users/[a-z]+/")
PRIVATE = re.compile(
    r"https?://(?:[^/\s\"']*@|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.)"
    r"|https?://[^/\s\"']*(?:artifactory|nexus|devpi|mirror|\.internal|\.corp|\.lan)\b"
    r"|index-url[ =]+[\"']?http|find-links[ =]+[\"']?[/h]"
)


def test_nothing_of_one_machine() -> None:
    """No path of one machine, and no package index that only one network reaches."""
    found = [
        f"{name(path)}:{i} {line.strip()}"
        for path in texts()
        if path != Path(__file__)
        for i, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE.search(line) or PRIVATE.search(line)
    ]
    assert found == []


def test_locks_name_no_host() -> None:
    """A lock has packages and hashes. Each machine decides where it gets them from."""
    locks = [p for p in texts() if p.suffix == ".lock"]
    assert len(locks) >= 2
    assert [host for lock in locks for host in re.findall(r"://\S+", lock.read_text())] == []
