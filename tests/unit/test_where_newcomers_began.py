"""The mu before a newcomer's first round is where the round began: everywhere, to the bit."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

import stream_rater
from stream_rater.config.ladders import Ladder, any_ladder
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.pipeline.parts.schema import UnknownPart
from stream_rater.rating.parameters import EloMMR, Glicko, RatingConfig, Season, TwoMoment
from stream_rater.replay.pool import ONE_WAVE, Pool
from stream_rater.replay.rating_changes import changes_of
from stream_rater.replay.sequential import Replay
from stream_rater.runtime import embedded
from tests.builders.machines import part
from tests.rounds import as_json, day, ranked, read

LINES = [
    as_json(*ranked([1, 2], ["ann", "bob"]), round_id="r0", completed_at=day(0)),
    as_json({"team": ["ann", "new"], "rank": 2}, {"team": ["cy", "dee", "eve"], "rank": 1},
            round_id="r1", completed_at=day(1)),
    as_json({"player": "bob", "rank": 1}, {"player": "flo", "rank": 2},
            {"player": "gus", "dnf": True}, round_id="r2", completed_at=day(2)),
    as_json(*ranked([2, 1], ["ann", "flo"]), round_id="r3", completed_at=day(90)),
]  # fmt: skip
NUMBERS = ("mu", "sigma", "previous_mu", "previous_sigma", "rating", "previous_rating", "rounds")


@pytest.mark.parametrize(
    "config",
    [
        TwoMoment(),
        TwoMoment(newcomer_offset=-31.7, newcomer_field=0.33, display="mu"),
        Glicko(beta=200.0, sigma_drift=35.0, newcomer_offset=-100.0),
        EloMMR(weight_limit=0.2, sigma_limit=80.0),
    ],
    ids=str,
)
def test_events_files_and_notebooks_show_the_same(config: RatingConfig) -> None:
    """The service's events, those of `rate --changes`, and the results in Python."""
    engine = embedded.Engine(any_ladder(config))
    for line in LINES:
        engine.log.submit(0, line, received_s=2e9)
        engine.settle()
    events = [rating_changed_from_json(each.value) for some in engine.log.changed for each in some]
    published = {
        (each.round_id, each.player): [getattr(each, n) for n in NUMBERS] for each in events
    }
    replay = Replay(any_ladder(config), 1000)
    offline = [
        each for batch in replay.run(iter(engine.log.rounds[0])) for each in changes_of(batch)
    ]
    assert published == {(e.round_id, e.player): [getattr(e, n) for n in NUMBERS] for e in offline}
    parameters = msgspec.to_builtins(config)
    ladder = stream_rater.Ladder(**{k: v for k, v in parameters.items() if k != "dnf"})
    sides = (
        [["ann"], ["bob"]],
        [["ann", "new"], ["cy", "dee", "eve"]],
        [["bob"], ["flo"], ["gus"]],
    )
    ranks: list[list[int | None]] = [[1, 2], [2, 1], [1, 2, None]]
    for number, (teams, rank) in enumerate(zip(sides, ranks, strict=True)):
        for row in ladder.rate(teams, rank, completed_at=day(number)).to_dicts():
            assert published[f"r{number}", row["player"]] == [row[name] for name in NUMBERS]


def test_the_first_duel() -> None:
    """Both begin 150 points below; the winner rises from there, and the loser falls."""
    won, lost = stream_rater.Ladder("two-moment").rate(["ann", "bob"]).to_dicts()
    assert won["previous_mu"] == lost["previous_mu"] == 1350.0
    assert won["mu"] - 1350.0 == pytest.approx(1350.0 - lost["mu"], abs=1e-3) and won["mu"] > 1400.0
    assert won["previous_rating"] == 1350.0


def test_a_season_does_not_hide_it() -> None:
    """In the first round of a season some are drawn, whose previous mu is that of before. Newcomers
    are not drawn."""
    config = TwoMoment()
    pool = Pool(Ladder(rating=config))
    pool.rate(read(config, *ranked([1, 2], ["ann", "bob"])), 0)
    before = dict(pool)["ann"]["mu"]
    pool.start_season(Season(1, 0.5, 200.0))
    standings = read(config, *ranked([2, 1], ["ann", "new"]))
    rows = pool.rows(standings.batch.names)
    result = pool.rate_rows(standings.batch, rows, ONE_WAVE, np.array([1]))
    heads = dict(pool)
    assert heads["ann"]["previous_mu"] == before
    assert (heads["ann"]["previous_season"], heads["new"]["previous_season"]) == (0, 0)
    began = heads["new"]["previous_mu"]
    assert began < 1500.0 - 50.0 and heads["new"]["previous_sigma"] == 350.0
    names = standings.batch.names.texts()
    assert result.published.mu[names.index("new")] == began
    assert result.published.mu[names.index("ann")] == before


# --- parts ---


def evidence(*began: float) -> schema.Part:
    """A part of rows that began so."""
    some = part((7, "ab"[: len(began)]))
    return replace(some, evidence=np.column_stack((some.evidence, np.array(began))))


def test_a_part_has_it_where_there_is_something_to_say() -> None:
    """Of any row. A message without newcomers is as long as those of older releases."""
    nan = float("nan")
    for began in ((1350.0, nan), (nan, 1350.5), (1.0, 2.0)):
        message = schema.encode(evidence(*began))
        (view,) = decoder.read_all([message])
        assert view is not None
        for found in (schema.decode(message).evidence, view.decoded.evidence):
            np.testing.assert_array_equal(found, evidence(*began).evidence)
    plain = schema.encode(part((7, "ab")))
    assert schema.encode(evidence(nan, nan)) == plain
    (view,) = decoder.read_all([plain])
    assert view is not None and np.isnan(view.decoded.evidence[:, 3]).all()
    elements = msgspec.msgpack.decode(schema.encode(evidence(1.0, 2.0)))
    assert len(elements[5]) == 64
    elements[5] = elements[5][:-8]
    with pytest.raises(UnknownPart):
        schema.decode(msgspec.msgpack.encode(elements))
    assert decoder.read_all([msgspec.msgpack.encode(elements)]) == [None]


def test_short_and_long_messages_are_read_together_to_the_bit() -> None:
    """Whatever the bits are: NaN of every kind, infinities, denormals. Short ones get NaN."""
    bits = np.random.default_rng(7).integers(-(2**63), 2**63 - 1, (6, 4))
    bits[:2] = [[0, -1, -(2**63), 2**63 - 1], [0x7FF0 << 48, 1, 0x7FF8 << 48, 0x7FF0 << 48 | 1]]
    long = bits.view(np.float64)
    nothing = np.full(6, np.nan)
    for parts in ((long, long[:, :3]), (long[:, :3], long), (long, long)):
        messages = [schema.encode(replace(part((7, "abcdef")), evidence=each)) for each in parts]
        for each, view in zip(parts, decoder.read_all(messages), strict=True):
            assert view is not None
            found = view.decoded.evidence[view.first : view.last]
            assert found[:, :3].tobytes() == each[:, :3].tobytes()
            assert found[:, 3].tobytes() == (each[:, 3] if each.shape[1] > 3 else nothing).tobytes()
