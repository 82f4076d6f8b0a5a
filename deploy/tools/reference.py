"""`make reference`: writes the tables of docs/reference from the code.

A part of a page between `<!-- generated: NAME -->` and `<!-- end -->` is written from types: the
docstrings of settings, click's help, the help of metrics, the error codes, the API's operations.
In a part that begins with `<!-- checked: NAME -->` the meanings are written by hand: each name of
the type must have a row, and the second column is filled in. The rest of a page stays as it is.
`python_api` writes the lists of python.md.

Figures of what ratings do in the long run, and in large rounds, are computed (`tests.fair_rounds`).
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Any, Final, get_args

import click
import msgspec
import python_api
import structlog
from prometheus_client.metrics import MetricWrapperBase

from local.tools import ROOT
from stream_rater.adapters.kafka.topic_rules import topic_settings
from stream_rater.cli import app
from stream_rater.config.ladders import Limits
from stream_rater.config.settings import PREFIX, AccessSettings, ServeSettings, Settings
from stream_rater.config.views import Listing, Tier
from stream_rater.contract.corrections import KINDS as CORRECTIONS
from stream_rater.contract.corrections import Batched
from stream_rater.contract.errors import REJECTIONS
from stream_rater.contract.events import CorrectionCause, Entry, RatingChanged, RoundCompleted
from stream_rater.contract.season_ended import Standing
from stream_rater.contract.seeds import SEEDS, RatingGiven, SeededPlayer
from stream_rater.rating import parameters
from stream_rater.rating.parameters import Climbing, Common, EloMMR, Evolving, RatingConfig
from stream_rater.runtime.metrics import EventLatency, Metrics
from stream_rater.runtime.observer import Lag
from stream_rater.serve.http.metrics import ApiMetrics
from stream_rater.serve.openapi import document
from stream_rater.serve.problems import KINDS
from stream_rater.serve.routes import MOST_OFFSET, OPERATIONS, Number
from tests import fair_rounds

PAGES: Final = (
    *sorted((ROOT / "docs" / "reference").glob("*.md")), ROOT / "docs" / "how-to" / "systems.md",
)  # fmt: skip
OPENAPI: Final = ROOT / "docs" / "reference" / "openapi.json"
PART: Final = re.compile(
    r"(<!-- (generated|checked): ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL
)
NEVER_SHOWN: Final = {"kafka_options"}
"""Settings without an environment variable; the text of the page explains them."""
ANYWHERE: Final = {"--settings", "--help"}
"""Options that the text explains once for all commands."""

Cells = Mapping[str, str | None]
"""By name in a checked table, the text of the second cell; None leaves that cell as it is."""


def main() -> int:
    """Write the pages. Returns 1, with one line, if a page and the code differ in a name."""
    for path in PAGES:
        try:
            page = written(path.read_text(encoding="utf-8"))
        except ValueError as error:
            print(f"reference: {path.name}: {error}", file=sys.stderr)
            return 1
        path.write_text(page, encoding="utf-8")
    OPENAPI.write_text(openapi(), encoding="utf-8")
    return 0


def openapi() -> str:
    """The API's document, as a process without tokens has it."""
    made = msgspec.json.encode(document(metadata.version("stream-rater"), token=False))
    return msgspec.json.format(made, indent=1).decode() + "\n"


def written(page: str) -> str:
    """A page with its generated and checked parts renewed. ValueError names what differs."""

    def part(found: re.Match[str]) -> str:
        begin, kind, name, text, end = found.groups()
        body = GENERATED[name]() if kind == "generated" else filled(name, text, CHECKED[name]())
        return f"{begin}\n{body.strip()}\n\n{end}"

    return python_api.written(PART.sub(part, page))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def filled(name: str, text: str, cells: Cells) -> str:
    """A table written by hand, with the second column filled in from the code."""
    lines, seen = text.strip().splitlines(), list[str]()
    for i, line in enumerate(lines[2:], start=2):
        _, first, *rest = re.split(r"(?<!\\)\|", line)
        names = re.findall(r"`([^`]+)`", first)
        seen += names
        found = list(dict.fromkeys(cells[each] for each in names if each in cells))
        if None not in found and found:
            rest[0] = f" {', '.join(filter(None, found))} ".replace("  ", " ")
        lines[i] = "|".join(("", first, *rest))
    if sorted(seen) != sorted(cells):
        unlike = sorted(set(seen) ^ cells.keys()) or sorted(seen)
        raise ValueError(f"the table {name} and the code differ in {', '.join(unlike)}")
    return "\n".join(lines)


# --- settings ------------------------------------------------------------------------------------


def docstrings(kind: type) -> dict[str, str]:
    """The docstring of each attribute of a class, on one line."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        match field, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def settings() -> str:
    """Every setting: those of all commands, of `serve`, of servers that ask for a password."""
    defaults = {each.name: each.default for each in msgspec.structs.fields(Settings)}
    rows = []
    for kind in (Settings, ServeSettings, AccessSettings):
        meanings = docstrings(kind)
        for name in kind.__annotations__:
            if name not in NEVER_SHOWN:
                row = (f"`{PREFIX}{name.upper()}`", shown(defaults[name]), meanings[name])
                rows.append(row)
    return table(("variable", "default", "meaning"), rows)


def shown(default: Any) -> str:
    """A setting's default as the tables write it; `none` stands for the empty text."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str):
        return f"`{default}`" if default else "none"
    return str(default)


# --- commands ------------------------------------------------------------------------------------


def named() -> Iterator[tuple[str, click.Command]]:
    """Every command with its words; for a group, all of its commands."""
    for name, command in sorted(app.main.commands.items()):
        if isinstance(command, click.Group):
            yield from ((f"{name} {own}", each) for own, each in sorted(command.commands.items()))
        else:
            yield name, command


def commands() -> str:
    """Every command with its arguments, and what its help says."""
    rows = []
    for name, command in named():
        context = click.Context(command, info_name=name)
        words = [p.make_metavar(context) for p in command.params if isinstance(p, click.Argument)]
        usage = " ".join(("stream-rater", name, *words)).replace("|", r"\|")
        rows.append((f"`{usage}`", in_a_cell(command.help or "")))
    return table(("command", "what it does"), rows)


def options() -> str:
    """Every option, once for all commands that have it with the same meaning. Those of all commands
    of a group stand beside the group's name. Options of several commands come first."""
    commands = dict[tuple[str, str], list[str]]()
    for name, command in sorted(app.main.commands.items()):
        if isinstance(command, click.Group):
            own = {f"{name} {one}": set(options_of(each)) for one, each in command.commands.items()}
            common = set.intersection(*own.values())
            rows = [(name, option) for option in sorted(common)]
            rows += [(one, option) for one in sorted(own) for option in sorted(own[one] - common)]
        else:
            rows = [(name, option) for option in options_of(command)]
        for of, option in rows:
            commands.setdefault(option, []).append(f"`{of}`")
    shared_first = sorted(commands.items(), key=lambda item: len(item[1]) == 1)
    return table(
        ("command", "option", "meaning"),
        ((", ".join(names), *option) for option, names in shared_first),
    )


def options_of(command: click.Command) -> Iterator[tuple[str, str]]:
    """Each option with its value, and its meaning with the default."""
    context = click.Context(command)
    for each in command.params:
        if not isinstance(each, click.Option) or each.hidden or ANYWHERE & set(each.opts):
            continue
        metavar = VALUES.get(each.type.name, each.make_metavar(context))
        value = "" if each.is_flag else f" {each.metavar or metavar}"
        meaning = in_a_cell(each.help or "")
        if each.show_default or (isinstance(each.default, str) and each.default):
            default = each.show_default if isinstance(each.show_default, str) else each.default
            meaning += f" Default: {default}."
        yield f"`{in_a_cell(each.opts[0] + value)}`", meaning.strip()


VALUES: Final = {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}
"""The value of an option, by click's name of its type."""


def in_a_cell(text: str) -> str:
    """A help text on one line, for a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")


# --- metrics, codes, the API ---------------------------------------------------------------------

SUFFIXES: Final = {"counter": "_total", "info": "_info"}


def metrics() -> str:
    """Every metric of a worker."""
    of_lag = [(each.name, "topic, partition", each.documentation) for each in Lag().collect()]
    rows = [*declared(Metrics()), *of_lag]
    return table(
        ("metric", "labels", "meaning"),
        ((f"`{name}`", labels, in_a_cell(meaning)) for name, labels, meaning in rows),
    )


def api_metrics() -> str:
    """Every metric of `serve`."""
    rows = declared(ApiMetrics(structlog.stdlib.get_logger()))
    return table(
        ("metric", "labels", "meaning"),
        ((f"`{name}`", labels, in_a_cell(meaning)) for name, labels, meaning in rows),
    )


def declared(metrics: object) -> Iterator[tuple[str, str, str]]:
    """Name, labels and help of each metric, in the order of their declaration."""
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase | EventLatency):
            (family,) = metric.collect()
            names = getattr(metric, "_labelnames", ())
            labels = "version, kernel" if family.type == "info" else ", ".join(names)
            yield family.name + SUFFIXES.get(family.type, ""), labels, family.documentation


def rejections() -> str:
    """Every error code of a record."""
    rows = ((f"`{code}`", meaning) for code, meaning in REJECTIONS.items())
    return table(("code", "the record was rejected because"), rows)


def operations() -> str:
    """Every operation of the API, and below what the parameters of their queries mean."""
    rows, meanings = list[tuple[str, ...]](), dict[tuple[str, str], None]()
    for each in OPERATIONS:
        names = ", ".join(f"`{name}`" for name in each.query)
        rows.append((f"`{each.method} {each.path}`", each.description, names))
        for name, of in each.query.items():
            bounds = f" (from {of.least:,}{most(of)})" if isinstance(of, Number) else ""
            meanings[f"`{name}`", of.description + bounds] = None
    queries = table(("in the query", "meaning"), meanings)
    return f"{table(('operation', 'answer', 'query'), rows)}\n\n{queries}"


def most(number: Number) -> str:
    """The upper bound of a number, unless it is that of every offset."""
    return "" if number.most == MOST_OFFSET else f" to {number.most:,}"


def problems() -> str:
    """Every error of the API."""
    rows = ((f"`{code}`", str(kind.status), kind.title) for code, kind in KINDS.items())
    return table(("code", "status", "meaning"), rows)


# --- ladders -------------------------------------------------------------------------------------


def systems() -> str:
    """Every rating system, with the parameters that not all systems have."""
    rows = []
    for system in get_args(RatingConfig):
        if system is EloMMR:
            continue
        base = next((b for b in (Evolving, Climbing) if issubclass(system, b)), Common)
        own = [
            f"`{field.encode_name}`{default_of(field)}"
            for field in msgspec.structs.fields(system)
            if field.encode_name not in base.__struct_fields__
        ]
        if base is not Common:
            own.append("those of Elo-MMR except `rho`" if base is Evolving else KERBYS)
        meaning = in_a_cell((inspect.getdoc(system) or "").split("\n\n")[0])
        rows.append((f'`"{system.__struct_config__.tag}"`', ", ".join(own), meaning))
    return table(("`system`", "its own parameters", "what it is"), rows)


FOLLOWING_TIES: Final[tuple[dict[str, Any], ...]] = tuple(
    {"system": system, **table, **ties}
    for system, table in (
        ("elo-mmr", {"weight_limit": 0.2, "sigma_limit": 80.0}),
        ("elo-r", {}),
        ("elo-mmx", {"weight_limit": 0.2, "sigma_limit": 80.0}),
    )
    for ties in ({}, {"ties": "split"})
)
"""The systems that take a tie as a performance that is shared, with both rules of ties."""
OTHERS: Final[tuple[dict[str, Any], ...]] = (
    {"system": "two-moment"},
    {"system": "codeforces", "beta": 200.0, "weight": 0.2},
    {"system": "topcoder"},
    {"system": "trueskill", "beta": 175.0, "sigma_drift": 3.5, "draw_margin": 31.1},
    {"system": "glicko2"},
)


def levels() -> str:
    """How much a round of five equals lifts the mean rating of its players, by system and ties."""
    rows = []
    for each in (*FOLLOWING_TIES, *OTHERS):
        config, ties = parameters.from_builtins(each), each.get("ties")
        rises = [round(fair_rounds.rise(config, ends), 1) for ends in fair_rounds.ENDS.values()]
        name = f"`{each['system']}`" + (f', `ties = "{ties}"`' if ties else "")
        rows.append((name, *(f"{points + 0.0:.1f}" for points in rises)))
    return table(("points a round", *fair_rounds.ENDS), rows)


LOBBIES: Final = (2, 10, 30, 100, 1000)


def lobbies() -> str:
    """The mu of the winner of a round of newcomers, by system and size."""
    margins = [{**OTHERS[3], "draw_margin": margin} for margin in (31.1, 1.0)]
    rows = []
    for each in (*margins, FOLLOWING_TIES[0], OTHERS[0]):
        config, margin = parameters.from_builtins(each), each.get("draw_margin")
        name = f"`{each['system']}`" + (f", `draw_margin = {margin:g}`" if margin else "")
        rows.append((name, *(f"{fair_rounds.winner(config, n):,.0f}" for n in LOBBIES)))
    return table(("mu of the winner of", *(f"{n:,} newcomers" for n in LOBBIES)), rows)


KERBYS: Final = "those of [Kerby's systems](#kerbys-systems)"


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """A parameter's default behind its name; nothing for a required one."""
    return "" if field.required else f" {plain(parameters.default_of(field))}"


def plain(default: Any) -> str:
    """A parameter's default as a ladders file has it."""
    match default:
        case None:
            return "none"
        case bool():
            return str(default).lower()
        case str():
            return f'`"{default}"`'
        case int():
            return f"{default:,}"
        case float():
            return f"{default:.6f}".rstrip("0").rstrip(".")
        case ():
            return "`[]`"
        case {}:
            return "`{}`"
    return str(default)


def defaults(kind: type[msgspec.Struct], *without: str, **unlike: str | None) -> dict[str, Any]:
    """Each parameter with its default. `unlike`: cells that the struct does not have."""
    found: dict[str, str | None] = {
        each.encode_name: "required" if each.required else plain(parameters.default_of(each))
        for each in msgspec.structs.fields(kind)
        if each.encode_name not in without
    }
    return found | unlike


def rating() -> Cells:
    """The parameters of Elo-MMR, with those of all systems."""
    return defaults(
        EloMMR, system="", weight_limit="required", sigma_limit="required", beta="", gamma="",
        display=None,
    )  # fmt: skip


def climbing() -> Cells:
    """The parameters of Kerby's systems; `floor` and `dnf` mean something else there."""
    shared = {*Common.__struct_fields__} - {"floor", "dnf"}
    return defaults(Climbing, *shared)


def limits() -> Cells:
    """The limits of a ladder."""
    return defaults(Limits, max_bytes=f"{Limits().max_bytes // 2**20} MiB")


def listing() -> Cells:
    """The rules by which players are listed."""
    rules = ("min_rounds", "max_sigma", "idle_days", "unlisted")
    return defaults(Listing, **dict.fromkeys(rules, "none"))


def tiers() -> Cells:
    """The fields of a tier."""
    return defaults(Tier, **{"from": "none"})


# --- events and topics ---------------------------------------------------------------------------


def of_rounds() -> Cells:
    """The fields of a round and of its entries; what is required depends on other fields."""
    entries = [f"standings[].{name}" for name in Entry.__struct_fields__]
    return dict.fromkeys((*RoundCompleted.__struct_fields__, *entries))


def of_changes() -> Cells:
    """The fields of a rating change."""
    causes = [f"correction.{name}" for name in CorrectionCause.__struct_fields__]
    return dict.fromkeys((*RatingChanged.__struct_fields__, *causes))


def of_standings() -> Cells:
    """The fields of a standing in `season-ended`."""
    return dict.fromkeys(Standing.__struct_fields__)


def of_correction(kind: type[msgspec.Struct], *without: str) -> Cells:
    """The fields of a correction, and whether each is required."""
    return {
        each.encode_name: "yes" if each.required else "no"
        for each in msgspec.structs.fields(kind)
        if each.name not in without
    }


def of_seeds() -> Cells:
    """The fields of a seed and of its players, and whether each is required."""
    own = of_correction(SEEDS["players-seeded"], *RatingGiven.__struct_fields__)
    players = of_correction(SeededPlayer)
    return {**own, **{f"players[].{name}": cell for name, cell in players.items()}}


def of_topics() -> Cells:
    """The topics that the service creates."""
    return dict.fromkeys(topic_settings(Settings()))


GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "settings": settings, "commands": commands, "options": options, "metrics": metrics,
    "api-metrics": api_metrics, "rejections": rejections, "operations": operations,
    "problems": problems, "systems": systems, "levels": levels, "lobbies": lobbies,
}  # fmt: skip
CHECKED: Final[Mapping[str, Callable[[], Cells]]] = {
    "rating": rating, "climbing": climbing, "limits": limits, "listing": listing,
    "tiers": tiers, "rounds": of_rounds,
    "changes": of_changes,
    "topics": of_topics, "standings": of_standings,
    "corrections": partial(of_correction, Batched),
    "seeds": partial(of_correction, RatingGiven),
    "players-seeded": of_seeds,
    "player-reset": partial(of_correction, SEEDS["player-reset"], *RatingGiven.__struct_fields__),
    **{
        name: partial(of_correction, kind, *Batched.__struct_fields__)
        for name, kind in CORRECTIONS.items()
        if set(kind.__struct_fields__) - set(Batched.__struct_fields__)
    },
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
