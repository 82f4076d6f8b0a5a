"""stream-rater as its next release may be: kernels of the next version, which compute other bits.

`python -m tests.integration.next_release run ...`
"""

from stream_rater.columns import kernels

kernels.KERNEL_VERSION += 1  # before anybody has looked at it

import numpy as np  # noqa: E402

from stream_rater.cli import app  # noqa: E402
from stream_rater.columns.arrays import Ints  # noqa: E402
from stream_rater.rating import systems  # noqa: E402
from stream_rater.rating.fold import Noted, Posteriors  # noqa: E402
from stream_rater.rating.model import PERFORMANCE, Beliefs, Evidence, Wave  # noqa: E402
from stream_rater.rating.parameters import RatingConfig  # noqa: E402
from stream_rater.runtime import selfcheck  # noqa: E402

_estimate = systems.estimate


def estimate(config: RatingConfig, wave: Wave) -> Evidence:
    """Performances that are one point higher."""
    evidence = _estimate(config, wave).copy()
    evidence[:, PERFORMANCE] += 1.0
    return evidence


def fold(
    config: RatingConfig, beliefs: Beliefs, rows: Ints, wave: Wave, turns: Ints, offset: Ints
) -> tuple[Evidence, Posteriors]:
    """Many rounds by these performances."""
    sizes = np.diff(wave.entry_starts[wave.round_starts])
    noted = Noted(np.repeat(offset, sizes), np.repeat(wave.time, sizes))
    return systems.fold_by_turns(config, beliefs, rows, wave, turns, noted)


systems.estimate, systems.fold = estimate, fold
selfcheck.EXPECTED = selfcheck.fingerprint()

if __name__ == "__main__":
    app.main()
