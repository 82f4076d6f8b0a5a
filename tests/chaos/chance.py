"""The seed of a row: a row that is repeated makes other random choices."""

_seed = 0


def reseed(seed: int) -> None:
    """Set the seed of the rows that follow. With 0 they are those of `make chaos`."""
    global _seed  # noqa: PLW0603  # all that a row imports asks for it
    _seed = seed


def seeded(base: int) -> int:
    """The seed for one purpose, which `base` names."""
    return base + 1_000_003 * _seed
