"""The ladders that `verify --sample` compares."""

from stream_rater.operations.verify import Sample, place_of

LADDERS = [f"ladder-{i}" for i in range(1000)]


def test_a_sample() -> None:
    """It has about its share, is part of every larger one, the same anywhere, and says so."""
    tenth, fifth = Sample.of(0.1, LADDERS), Sample.of(0.2, LADDERS)
    assert 70 < len(tenth.ladders) < 130
    assert tenth.ladders < fifth.ladders < frozenset(LADDERS)
    assert Sample.of(1.0, LADDERS).ladders == frozenset(LADDERS)
    assert place_of("ranked-eu") == 0.37036004154313595
    assert Sample.of(0.05, LADDERS) == Sample.of(0.05, reversed(LADDERS))
    assert Sample.of(0.5, []).ladders == frozenset()
    one = Sample.of(1e-9, LADDERS)
    assert one.ladders == {min(LADDERS, key=place_of)}
    assert one.described(12, 34_567, 89_000) == (
        "This is a sample of 1e-09: 1 of 1,000 ladders, 12 of 34,567 players, in a log of 89,000 "
        "records. Nothing is proven about the others"
    )
