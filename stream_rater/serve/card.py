"""Draws a player as a card that other sites can show as a picture: an SVG image without scripts.
Ids are hostile texts: they stand in it as escaped text alone."""

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape

from stream_rater.config.ladders import Page
from stream_rater.serve.bodies import RankedPlayer

WIDTH, HEIGHT = 320, 96
MOST_LETTERS = 26  # The most characters of a name that are shown.
NOT_OF_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def draw_card(ladder: str, player: RankedPlayer, ratings: Sequence[float], page: Page) -> str:
    """The card of a player. `ratings`: those after the last changes, oldest first."""
    rank = f"{player.rank:,} of {player.listed:,}" if player.rank else "not listed"
    facts = " · ".join([rank, f"{player.rounds:,} rounds", *([player.tier] if player.tier else [])])
    what = f"{player.player} on {ladder}: {player.rating:.0f}, {facts}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" font-family="system-ui, sans-serif" fill="#1a2230">'
        f"<title>{_text(what, len(what))}</title>"
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8" fill="#fff" '
        f'stroke="#d4dbe5"/><rect width="6" height="{HEIGHT}" rx="3" fill="{page.colour}"/>'
        f'<text x="20" y="28" font-size="17" font-weight="bold">{_text(player.player)}</text>'
        f'<text x="20" y="58" font-size="24" font-weight="bold">{player.rating:.0f}</text>'
        f'<text x="20" y="82" font-size="12" fill="#4d5a6e">{_text(facts, 48)}</text>'
        f'<text x="{WIDTH - 14}" y="82" font-size="12" fill="#4d5a6e" text-anchor="end">'
        f"{_text(ladder, 14)}</text>"
        f'<polyline points="{_line(ratings)}" fill="none" stroke="{page.colour}" stroke-width="2"/>'
        "</svg>"
    )


def _text(text: str, most: int = MOST_LETTERS) -> str:
    shown = text if len(text) <= most else text[: most - 1] + "…"
    return escape(NOT_OF_XML.sub("\ufffd", shown))


def _line(ratings: Sequence[float]) -> str:
    """The points of a line from x = 110 to the edge, between y = 38 and y = 62."""
    low, high = min(ratings, default=0.0), max(ratings, default=0.0)
    step, height = (WIDTH - 124) / max(len(ratings) - 1, 1), (high - low) or 1.0
    return " ".join(
        f"{110 + i * step:.1f},{62 - 24 * (each - low) / height:.1f}"
        for i, each in enumerate(ratings)
    )
