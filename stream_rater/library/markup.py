"""Tables as HTML for notebooks.

All texts are escaped. Nothing has a colour of its own, and lines have that of the text, so a table
suits light and dark notebooks. Styles stand at each element, because notebooks that are not trusted
drop style sheets.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

WHOLE = "overflow-x: auto; font-variant-numeric: tabular-nums"
TABLE = "border-collapse: collapse; table-layout: auto; margin: 0"
CAPTION = "caption-side: top; padding: 0 0 0.5em; color: inherit"
CELL = "padding: 0.2em 0.8em; white-space: nowrap"
HEADING = "border-bottom: 1px solid currentColor"
NOTE = "opacity: 0.7; margin: 0.3em 0.8em"


def table(
    title: str, headings: Iterable[str], rows: Iterable[Sequence[str]], is_left: Sequence[bool],
    notes: Iterable[str] = (),
) -> str:  # fmt: skip
    """A table with a title above it and notes below it. `is_left`: whether each column is aligned
    to the left, otherwise to the right."""
    styles = [f"text-align: {'left' if left else 'right'}; {CELL}" for left in is_left]
    head = _row("th", headings, [f"{style}; {HEADING}" for style in styles])
    body = "".join(_row("td", row, styles) for row in rows)
    below = "".join(f'<p style="{NOTE}">{escape(note)}</p>' for note in notes)
    return (
        f'<div style="{WHOLE}"><table style="{TABLE}">{_caption(title)}<thead>{head}</thead>'
        f"<tbody>{body}</tbody></table>{below}</div>"
    )


def fields(title: str, values: Mapping[str, str]) -> str:
    """A table with a row for each name and its value."""
    name, value = f"text-align: left; {CELL}", f"text-align: right; {CELL}"
    body = "".join(
        f'<tr><th scope="row" style="{name}">{escape(each)}</th>'
        f'<td style="{value}">{escape(text)}</td></tr>'
        for each, text in values.items()
    )
    return (
        f'<div style="{WHOLE}"><table style="{TABLE}">{_caption(title)}<tbody>{body}</tbody>'
        "</table></div>"
    )


def _caption(title: str) -> str:
    return f'<caption style="{CAPTION}">{escape(title)}</caption>'


def _row(tag: str, cells: Iterable[str], styles: Sequence[str]) -> str:
    parts = (
        f'<{tag} style="{style}">{escape(text)}</{tag}>'
        for text, style in zip(cells, styles, strict=True)
    )
    return f"<tr>{''.join(parts)}</tr>"
