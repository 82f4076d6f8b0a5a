"""What the cells of a column leave open: `03/04/2020`, `1,234`, `resigned`.

A column is decided as a whole, by all of its cells, or it is a question to the caller; never are a
part of its rows taken and the others refused. So a reader of a column notes what its cells allow,
and reads on by a first guess. At the end of the table the column is settled: the guess was right,
or the table is read again by what is known now, or BadConfiguration has the question, with up to
three rows and the option that decides.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from stream_rater.config.errors import BadConfiguration
from stream_rater.tables import sources as cells
from stream_rater.tables.names import plain
from stream_rater.tables.reading import MARGIN, MEANINGS, WHOLE, Reading

MOST_SEEN: Final = 200  # The most open texts of a column that are stored.
MOST_ASKED: Final = 8  # The most open texts that a question lists.
ROWS: Final = 3  # The rows that a question shows.
MOST_TEXTS: Final = 4_000  # The most texts in which the members of teams are looked for.

NOT_FINISHED: Final = frozenset(
    ("dnf", "dsq", "dq", "disq", "disqualified", "ret", "retired", "rtd", "nc", "otl", "hd", "exc",
     "\\n", "-1")
)  # fmt: skip
"""The texts in place of a rank, or of a score, of somebody who took part and has no place."""
NOT_STARTED: Final = frozenset(("dns", "dnq", "dnpq", "scr", "wd", "ns"))
"""Those of somebody who did not take part, whose row is left out."""

RESULTS: Final = {
    **dict.fromkeys(("h", "home", "w", "win", "won", "1-0"), cells.FIRST),
    **dict.fromkeys(
        ("d", "draw", "drawn", "tie", "tied", "x", "=", "1/2-1/2", "½-½", "jigo", "bothbad",
         "both_bad", "tie(bothbad)", "tie(both_bad)"), cells.DRAWN),
    **dict.fromkeys(("a", "away", "l", "loss", "lost", "lose", "0-1"), cells.SECOND),
}  # fmt: skip
"""The ranks by the texts of results, which are those of the first side."""

SCHEMES: Final[tuple[dict[float, tuple[int, int]], ...]] = (
    {1: cells.FIRST, 0.5: cells.DRAWN, 0: cells.SECOND},  # points of chess
    {1: cells.FIRST, 2: cells.SECOND},  # the number of the side
    {1: cells.FIRST, 0: cells.DRAWN, -1: cells.SECOND},  # signs
    {3: cells.FIRST, 1: cells.DRAWN, 0: cells.SECOND},  # points of football
)
"""The ranks by the numbers of a column of results. There is one mapping for each scheme."""
_SIGNS: Final[tuple[set[float], ...]] = ({1, 0.5}, {2}, {-1}, {3})
"""The numbers of which a column must have one for each scheme."""

GUESSES: Final = {
    **dict.fromkeys(
        ("resigned", "checkmated", "timeout", "abandoned", "lose", "quit", "forfeit"), "loss"),
    **dict.fromkeys(
        ("agreed", "repetition", "stalemate", "insufficient", "50move", "timevsinsufficient"),
        "draw"),
    **dict.fromkeys(("", "*", "bye", "nr", "noresult", "postponed", "cancelled"), "skip"),
}  # fmt: skip
"""What a question proposes for a text. It is never taken without the answer."""

NOT_PLAYED: Final = re.compile(
    r"\b(w[/.]?o|walk ?over|forfeit\w*|ff|bye|(not|never) played|n[/.]?p|abandon\w*|canc\w*|"
    r"postponed|no.?(result|contest|show)|nc|dq|ns|void|awarded|un(played|finished)|incomplete|"
    r"suspended|pending|in.?progress|in.?play|scheduled)\b", re.IGNORECASE,
)  # fmt: skip
"""The words that say that a match was not played, or not to its end."""
TIES: Final = ("tie", "draw", "tied", "isdraw", "istie")
"""The names of the columns that say yes where a match was a draw."""
STATUSES: Final = frozenset(
    ("status", "state", "result", "res", "score", "outcome", "comment", "comments", "remarks",
     "notes", "wintype", "wonby", "method", "matchstatus", *TIES)
)  # fmt: skip
"""The names of the columns in which these words are looked for."""
NOBODY: Final = frozenset(
    ("bye", "Bye", "BYE", "(bye)", "(Bye)", "(BYE)", "spielfrei", "Freilos", "tbd", "TBD", "tba",
     "TBA", "n/a", "N/A", "-", "--", "-1", "?", "\\N", "NULL", "null", "Total", "TOTAL", "total")
)  # fmt: skip
"""Ids that stand where no player was."""

_BETWEEN: Final = ";|/+&,"  # What may separate the members of a team. Blanks are in names, too.
_LIST: Final = re.compile(r"(?s)[\[({]\s*(.*?)\s*,?\s*[\])}]")
_QUOTED: Final = re.compile(r"(?s)(['\"])(.*?)\1")
QUOTES: Final = ("'", '"')

_PAIR: Final = re.compile(r"(\d+(?:\.\d+)?)\s*[-–—:]\s*(\d+(?:\.\d+)?)")
_PLACE: Final = re.compile(r"[t=]?\s*(\d+)\s*(?:st|nd|rd|th|t|=|\.)?")
_BY: Final = re.compile(r"([bwr])\+.*")
_HALVES: Final = {"½": "0.5", "1/2": "0.5", "0,5": "0.5"}
_NUMBERS: Final = {
    decimal: re.compile(
        rf"[+-]?(?=[\d{decimal}])(\d{{1,3}}([{other}'’ \u00a0\u202f]\d{{3}})+|\d*)"
        rf"([{decimal}]\d*)?([eE][+-]?\d+)?"
    )
    for decimal, other in ((".", ","), (",", "."))
}
_TRUE: Final = frozenset(("true", "t", "yes", "y", "1", "dnf", "neutral"))
_FALSE: Final = frozenset(("false", "f", "no", "n", "0", "", "home"))
_DRAWS: Final = {text for text, ranks in RESULTS.items() if ranks == cells.DRAWN}
_SCORES: Final = {"1-0": (1, 0), "0-1": (0, 1), "1/2-1/2": (0.5, 0.5), "½-½": (0.5, 0.5)}

Outcome = tuple[tuple[int, int], tuple[int | float, ...]]
"""The ranks of two sides, and their scores, if the result has them."""


class LeftOut(Exception):
    """A row is left out, by its text or by what the caller says."""


class Doubts:
    """What is open in a table."""

    def __init__(self, name: str, unit: str, reading: Reading) -> None:
        self.name, self.unit, self.reading = name, unit, reading
        self.line = 0  # The number of the present row.
        self.decided: dict[str, Any] = {}
        """What an earlier reading of the table has decided, by column."""
        self.columns: list[ReadColumn] = []

    def settled(self) -> bool:
        """Settle all columns. Returns False if the table must be read again. Raises
        BadConfiguration with a question."""
        is_settled = not [each for each in self.columns if each.settle()]
        self.columns = self.columns if is_settled else []
        return is_settled

    def said(self) -> list[str]:
        return [f"{each.name}: {text}" for each in self.columns if (text := each.said())]

    def ask(self, text: str) -> NoReturn:
        """Raise BadConfiguration with a question about the table."""
        raise BadConfiguration(f"{self.name}: {text}")


class ReadColumn:
    """One or several columns while a table is read. `seen`: texts in doubt, with their first
    row."""

    def __init__(self, name: str, doubts: Doubts) -> None:
        self.name, self.doubts, self.reading = name, doubts, doubts.reading
        self.seen: dict[str, str] = {}
        doubts.columns.append(self)

    def note(self, text: str, players: Sequence[Sequence[str]] = ()) -> None:
        """Note an open text of the present row. `players`: those of each side, for a question."""
        if text not in self.seen and len(self.seen) < MOST_SEEN:
            more = " – ".join("+".join(names) for names in players)
            self.seen[text] = f"{self.row_of(text)}{f' ({more})' if more else ''}"

    def row_of(self, text: str) -> str:
        """The present row with a text of it, as a question shows it."""
        return f"{self.doubts.unit} {self.doubts.line}: {cells.shown(text)}"

    @property
    def rows(self) -> str:
        return "; ".join([*self.seen.values()][:ROWS])

    @property
    def listed(self) -> str:
        """The open texts, as a question lists them."""
        more = len(self.seen) - MOST_ASKED
        texts = ", ".join(map(cells.shown, [*self.seen][:MOST_ASKED]))
        return texts + (f" and {more} more" if more > 0 else "")

    def meaning(self, text: str) -> str:
        """What the caller says that a text means: one of MEANINGS, or empty. Raises LeftOut."""
        meaning = self.reading.result.get(text.strip().lower(), "")
        if meaning == "skip":
            raise LeftOut
        return meaning

    def meaning_question(self, choices: Iterable[str] = MEANINGS[:-1], more: str = "") -> str:
        """The question of what the texts in doubt mean."""
        texts = [*self.seen][:MOST_ASKED]
        proposed = {text: GUESSES.get(text.lower().replace(" ", ""), "?") for text in texts}
        return (
            f"what is meant by {self.listed}? {self.rows}: say it, as "
            f"{self.reading.by('result', proposed)}, each as one of {', '.join(choices)}{more}"
        )

    def settle(self) -> bool:
        """Decide, or ask by BadConfiguration. Returns whether the table must be read again."""
        if self.seen and (question := self.question()):
            self.ask(question)
        return False

    def question(self) -> str:
        """The question about the texts in doubt; empty if there is none."""
        return ""

    def said(self) -> str:
        """The reading that was chosen; empty if there was no choice."""
        return ""

    def ask(self, text: str) -> NoReturn:
        self.doubts.ask(f"column {self.name}: {text}")


class ColumnQuestion(ReadColumn):
    """A column about which the caller is asked if there is any open text."""

    def __init__(self, name: str, doubts: Doubts, text: str, cure: str) -> None:
        """`text` stands before the rows, `cure` behind them."""
        super().__init__(name, doubts)
        self._text, self._cure = text, cure

    def question(self) -> str:
        return f"{self._text} {self.rows}: {self._cure}"


class Members(ReadColumn):
    """The players of sides. A cell may have all members of a team."""

    def __init__(self, name: str, doubts: Doubts) -> None:
        super().__init__(name, doubts)
        self._rows: dict[str, int] = {}
        """The first distinct texts, each with its row."""

    def of(self, value: Any) -> Any:
        """The player in a cell, or a list if the caller says what separates players."""
        by = self.reading.members
        if by == WHOLE or type(value) is not str or not value.strip():
            return value
        if not by and len(self._rows) < MOST_TEXTS:
            self._rows.setdefault(value.strip(), self.doubts.line)
        return members_in(value, by) if by else value

    def settle(self) -> bool:
        are_lists = any(
            (of := _LIST.fullmatch(each)) and of[1][:1] in QUOTES for each in self._rows
        )
        for sign in "," if are_lists else _BETWEEN:
            found = ((text, members_in(text, sign)) for text in self._rows)
            teams = {text: names for text, names in found if names and names != [text]}
            if are_lists or (teams and self._are_teams(teams)):
                both = "; ".join(
                    f"{self.doubts.unit} {self._rows[text]}: {cells.shown(text)} is one player, or "
                    f"{' and '.join(map(cells.shown, names))}"
                    for text, names in [*teams.items()][:ROWS]
                )
                cures = " or ".join(self.reading.by("members", each) for each in (sign, WHOLE))
                self.ask(f"does {sign!r} separate the members of a team? {both}: say {cures}")
        return False

    def _are_teams(self, teams: Mapping[str, Sequence[str]]) -> bool:
        """Whether texts may be teams: a good part of all texts, of three names each, or of names
        that other texts have, too."""
        every = [*teams.values(), *([text] for text in self._rows.keys() - teams.keys())]
        texts = Counter(name for names in every for name in {*names})
        of_teams = {name for names in teams.values() for name in names}
        again = sum(texts[name] > 1 for name in of_teams)
        large = sum(len(names) > 2 for names in teams.values())
        return 1 < len(teams) >= 0.1 * len(every) and (
            4 * again >= len(of_teams) or 2 * large > len(teams)
        )


def members_in(text: str, sign: str) -> list[str]:
    """The members in a text with this sign between them, or in a list of quoted names."""
    listed = _LIST.fullmatch(text.strip())
    if listed and (text := listed[1])[:1] in QUOTES:
        return [name.strip() for _, name in _QUOTED.findall(text)]
    parts = text.split(sign if sign.strip().isalnum() else sign.strip() or None)
    return [each for part in parts if (each := part.strip())]


class Numbers(ReadColumn):
    """Numbers, whose comma may separate thousands or decimals."""

    def __init__(self, name: str, doubts: Doubts) -> None:
        super().__init__(name, doubts)
        self._decimal = self.reading.decimal or doubts.decided.get(name, "")
        self._fits = dict.fromkeys(_NUMBERS, True)

    def of(self, value: Any, code: str = "malformed") -> int | float:
        """The number in a cell. Raises Invalid with this code."""
        if type(value) is str and not value.isdecimal() and not cells.is_missing(value):
            value = self._plain(value.strip(), code)
        return cells.number(value, self.name, code)

    def _plain(self, text: str, code: str) -> str:
        """The text with a point, and without separators of thousands. Raises Invalid."""
        forms = {decimal: _without(text, decimal) for decimal in _NUMBERS}
        if not self._decimal and any(forms.values()) and len(set(forms.values())) > 1:
            for decimal, form in forms.items():
                self._fits[decimal] &= form is not None
            if "," in text or forms["."] is None:
                self.note(text)
        if self._decimal and not forms[self._decimal] and any(forms.values()):
            text = f"{cells.shown(text)} is no number by {self._decimal!r}"
            raise cells.mistake(code, self.name, text)
        return forms[self._decimal or "."] or forms[","] or text

    def settle(self) -> bool:
        if not self.seen or self._decimal:
            return False
        fits = [decimal for decimal, does in self._fits.items() if does]
        if len(fits) != 1:
            both = "; ".join(
                f"{row} is {' or '.join(_as(text, decimal) for decimal in _NUMBERS)}"
                for text, row in [*self.seen.items()][:ROWS]
            )
            cures = " or ".join(self.reading.by("decimal", decimal) for decimal in _NUMBERS)
            self.ask(f"does a comma separate thousands or decimals? {both}: say {cures}")
        self.doubts.decided[self.name] = fits[0]
        return fits == [","]

    def said(self) -> str:
        if not self._decimal and not self.seen:
            return ""
        used, text = self._decimal or ".", next(iter(self.seen), "")
        example = f", as {cells.shown(text)} is {_as(text, used)}" if text else ""
        return f"{cells.shown(used)} separates decimals{example}"


def _without(text: str, decimal: str) -> str | None:
    """A number with a point, and no separators; None if it is none with this sign."""
    if not _NUMBERS[decimal].fullmatch(text):
        return None
    return re.sub("[,.'’ \u00a0\u202f]", lambda sign: "." if sign[0] == decimal else "", text)


def _as(text: str, decimal: str) -> str:
    number = _without(text, decimal)
    return f"{'no number' if number is None else number} by {decimal!r}"


class Places(ReadColumn):
    """Ranks, or scores whose place a code may take."""

    def __init__(self, name: str, doubts: Doubts) -> None:
        super().__init__(name, doubts)
        self._codes: dict[str, set[str]] = {"did not finish": set(), "left out": set(), "": set()}

    def of(self, value: Any) -> int | None:
        """The rank in a cell; None for somebody who did not finish. Raises LeftOut, or Invalid."""
        if type(value) is int and value > 0:
            return value
        text = cells.stripped(value)
        if text.isdecimal() and (rank := int(text)) > 0:
            return rank
        if self.is_code(text):
            return None
        if (place := _PLACE.fullmatch(text.lower())) and int(place[1]) > 0:
            self._codes[""].add(text)
            return int(place[1])
        if _NUMBERS["."].fullmatch(text) and (amount := float(text)) > 0 and amount.is_integer():
            return int(amount)
        self.note(text)
        return None

    def is_code(self, text: str) -> bool:
        """Whether a text says that somebody did not finish. Raises LeftOut."""
        key = text.strip().lower()
        if said := self.meaning(text):
            return said in ("dnf", "loss")
        if key in NOT_STARTED:
            self._codes["left out"].add(text)
            raise LeftOut
        if key in NOT_FINISHED:
            self._codes["did not finish"].add(text)
        return key in NOT_FINISHED

    def question(self) -> str:
        numbers = all(_NUMBERS["."].fullmatch(text) for text in self.seen)
        as_score = self.reading.by("columns", {"rank": "", "score": self.name})
        more = f"; or name it as a score, as {as_score} with --score low" if numbers else ""
        return self.meaning_question(("dnf", "skip"), more)

    def said(self) -> str:
        return "; ".join(
            f"{', '.join(sorted(texts)[:MOST_ASKED])} {what or 'are places'}"
            for what, texts in self._codes.items() if texts
        )  # fmt: skip


class _Negatives(ReadColumn):
    """The scores below 0 of a column in which a low score is the better one."""

    least = 0.0

    def question(self) -> str:
        if self.least < -2:
            return ""
        codes = dict(zip(self.seen, ("dnf", "skip"), strict=False))
        kept = dict.fromkeys(self.seen, "score")
        return (
            f"is a score below 0 the best one, or a code? {'; '.join(self.seen.values())}: say "
            f"{self.reading.by('result', codes)} or {self.reading.by('result', kept)}"
        )


class Scores(Places):
    """Scores of entries, or codes in their place."""

    def __init__(self, name: str, doubts: Doubts) -> None:
        self._negatives = _Negatives(name, doubts)  # made first, so it asks first
        super().__init__(name, doubts)
        self._number = Numbers(name, doubts)

    def score(self, value: Any) -> int | float | None:
        """The score in a cell; None for somebody who did not finish. Raises LeftOut, or Invalid."""
        if (type(value) is int and value >= 0) or (type(value) is str and value.isdecimal()):
            return cells.number(value, self.name)  # nearly all
        text = cells.stripped(value)
        if any(form.fullmatch(text) for form in _NUMBERS.values()):
            if text[0] == "-" and self.meaning(text) == "dnf":
                return None
            score = self._number.of(value)
            self._negatives.least = min(self._negatives.least, score)
            if score < 0 and self.reading.score == "low" and text not in self.reading.result:
                self._negatives.note(text)
            return score
        if not self.is_code(text):
            self.note(text)
        return None


class Flags(ReadColumn):
    """A column that says yes or no. An empty cell says no."""

    def __init__(self, name: str, doubts: Doubts, role: str = "dnf") -> None:
        super().__init__(name, doubts)
        self._role = role

    def of(self, value: Any) -> bool:
        if isinstance(value, float) and value in (0.0, 1.0):
            return value == 1.0
        text = cells.stripped(value)
        if text.lower() not in _TRUE and text.lower() not in _FALSE:
            self.note(text)
        return text.lower() in _TRUE

    def question(self) -> str:
        left = self.reading.by("columns", {self._role: ""})
        return f"is {self.listed} yes or no? {self.rows}: leave the column out, as {left}"


class Results(ReadColumn):
    """The results of matches, which are those of the first of two sides, or the winner's name."""

    def __init__(
        self, name: str, doubts: Doubts, initials: Mapping[str, tuple[int, int]], *,
        scored: bool, names_winner: bool,
    ) -> None:  # fmt: skip
        """`initials`: the ranks by the first letters of the sides. `scored`: whether scores say who
        won, too. `names_winner`: whether it has the names of winners, so that a number is that of a
        side."""
        super().__init__(name, doubts)
        self._initials, self._scored, self._names_winner = initials, scored, names_winner
        self._numbers: set[float] = set()
        self._has_words = self.has_ids = False
        guess: Mapping[float, tuple[int, int]] = SCHEMES[names_winner]
        self._scheme = doubts.decided.get(name, guess)

    def is_known(self, value: Any) -> bool:
        """Whether a cell is a word of results, and no number."""
        key = _key(cells.stripped(value))
        return key in RESULTS or key in self._initials or key in self.reading.result

    def of(self, value: Any, players: Sequence[Sequence[str]]) -> Outcome:
        """The outcome by a cell. `players`: those of each side, for a question. Raises LeftOut."""
        text = cells.stripped(value)
        key = _key(text)
        if said := self.meaning(text):
            return {"win": cells.FIRST, "draw": cells.DRAWN}.get(said, cells.SECOND), ()
        if ranks := self._initials.get(key) or RESULTS.get(key):
            return ranks, _SCORES.get(key, ())
        if (won := _BY.fullmatch(key)) and (ranks := self._initials.get(won[1])):
            return ranks, ()
        if _NUMBERS["."].fullmatch(_HALVES.get(key, key)):
            points = float(_HALVES.get(key, key))
            if MARGIN in self.reading.result:
                return cells.order((points, 0.0))[:2], ()  # type: ignore[return-value]
            self._numbers.add(points)
            self.note(text, players)
            return self._scheme.get(points, cells.DRAWN), ()
        if pair := _PAIR.fullmatch(text):
            scores = cells.number(pair[1], self.name), cells.number(pair[2], self.name)
            return cells.order(scores)[:2], scores  # type: ignore[return-value]
        self.note(text, players)
        self._has_words = True
        return cells.DRAWN, ()

    def settle(self) -> bool:
        if not self.seen:
            return False
        numbers = self._numbers
        fitting = [
            scheme for scheme, signs in zip(SCHEMES, _SIGNS, strict=True)
            if numbers <= scheme.keys() and numbers & signs and not self._has_words
            and (not self._names_winner or (scheme is SCHEMES[1] and not self.has_ids))
        ]  # fmt: skip
        if not fitting:
            more = f"; or leave it out, as {self.reading.by('columns', {'result': ''})}"
            is_margin = len(numbers) > 1 and not self._has_words
            if is_margin:
                margin = self.reading.by("result", MARGIN)
                more += f"; or say {margin} if it is the margin by which the first side won"
            self.ask(self.meaning_question(more=more if self._scored or is_margin else ""))
        before, self._scheme = self._scheme, fitting[0]
        self.doubts.decided[self.name] = self._scheme
        return before is not self._scheme

    def said(self) -> str:
        words = {cells.FIRST: "won", cells.DRAWN: "a draw", cells.SECOND: "lost"}
        of = sorted(self._numbers)
        listed = ", ".join(f"{points:g} is {words[self._scheme[points]]}" for points in of)
        return f"of the first side, {listed}" if listed else ""


def _key(text: str) -> str:
    return text.lower().replace(" ", "")


class Statuses(ReadColumn):
    """A column that may say that a match was not played, or, in a table of winners and losers, that
    it was a draw; or players who may be nobody."""

    def __init__(self, name: str, doubts: Doubts, *, won: bool = False) -> None:
        super().__init__(name, doubts)
        cures = " or ".join(map(self.reading.by_columns, ({"result": name}, {"status": ""})))
        asked = "was it a draw?", f"say {cures}"
        self._draws = ColumnQuestion(name, doubts, *asked) if won else None

    def see(self, value: Any) -> None:
        """Look at a cell of such a column."""
        if isinstance(value, str) and (value.strip() == "*" or NOT_PLAYED.search(value)):
            self.note(value.strip())
        elif self._draws is not None:
            text = str(value).strip().lower()
            flagged = text in _TRUE and plain(self.name) in TIES
            if flagged or text in _DRAWS or re.search(r"\bdraw\b", text):
                self._draws.note(str(value).strip())

    def question(self) -> str:
        skip = self.reading.by("skip", {self.name: [*self.seen][:MOST_ASKED]})
        taken = self.reading.by("columns", {"status": ""})
        return (
            f"was there a match? {self.rows}: say {skip} to leave such rows out, or {taken} to "
            "take them as all others"
        )
