"""Volatility farming, as in the paper: Topcoder pays for it, Elo-MMR does not."""

import numpy as np
import pytest

from stream_rater.evaluation.research import farming
from stream_rater.evaluation.research.evidence import (
    FARMING_SYSTEMS,
    MADE_UP_THRESHOLD,
    farm,
    made_up_farm,
)
from stream_rater.evaluation.research.farming import FARMED, HARVEST, HONEST, last
from tests.rounds import as_json, ranked
from tests.unit.test_season import sessions


@pytest.mark.parametrize(
    ("places", "who", "rows", "after"),
    [
        ([1, 2, 3], 0, [1, 2, 0], [2, 3, 4]),
        ([1, 1, 3], 1, [0, 2, 1], [1, 3, 4]),
        ([1, 2, 3], 2, [0, 1, 2], [1, 2, 4]),
        ([1, 2, 0], 0, [1, 0, 2], [2, 3, 0]),
        ([1, 2, 0], 2, [0, 1, 2], [1, 2, 3]),
    ],
)
def test_last_of_all_who_finished(
    places: list[int], who: int, rows: list[int], after: list[int]
) -> None:
    """Behind everyone with a rank, before those without; the others stay as they were."""
    (session,), _ = sessions(as_json(*ranked(places)))
    changed = last(session, who)
    assert (changed.rows.tolist(), changed.rounds[0].place.tolist()) == (rows, after)


def test_farming_pays_at_topcoder_and_never_by_elo_mmr() -> None:
    """Figure 2, on a made-up season: hundreds of points there, and never a point here."""
    data, row = made_up_farm()
    careers = farm(data, row, MADE_UP_THRESHOLD)
    assert set(careers) == set(FARMING_SYSTEMS)
    for career in careers.values():
        assert len(career.honest) == len(career.farmed) == HONEST + FARMED + HARVEST
        assert career.honest[:HONEST] == career.farmed[:HONEST]
    assert careers["topcoder"].gain >= 300.0
    ours = careers["elo-mmr"]
    ahead = np.array(ours.farmed) - np.array(ours.honest)
    assert ahead.max() == 0.0 and ours.gain < 0.0
    penalty = -ahead[-HARVEST:]  # decays once honest play resumes
    assert penalty[-1] < 0.5 * penalty.max()


def test_the_farmer_falls_only_when_it_pays_and_only_in_time() -> None:
    """The rounds before and after the farming are as they were; some of those between are not."""
    data, row = made_up_farm()
    season = farming.until(data.sessions, row, HONEST + FARMED + HARVEST)
    played = farming.farmed(season, row, FARMING_SYSTEMS["topcoder"], MADE_UP_THRESHOLD)
    fell = [a is not b for a, b in zip(season, played, strict=True)]
    assert not any(fell[:HONEST]) and not any(fell[HONEST + FARMED :])
    assert 0 < sum(fell) < FARMED
    never = farming.farmed(season, row, FARMING_SYSTEMS["topcoder"], 1e9)
    assert all(a is b for a, b in zip(season, never, strict=True))
