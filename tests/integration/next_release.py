"""stream-rater with kernels of the next version, which compute other bits than these."""

from stream_rater.columns import kernels

kernels.KERNEL_VERSION += 1  # before other modules read it

from stream_rater.cli import app  # noqa: E402
from stream_rater.rating import stages  # noqa: E402
from stream_rater.rating.model import PERFORMANCE, Evidence, Wave  # noqa: E402
from stream_rater.rating.parameters import RatingConfig  # noqa: E402
from stream_rater.runtime import selfcheck  # noqa: E402

_estimate = stages.estimate


def estimate(config: RatingConfig, wave: Wave) -> Evidence:
    """Performances that are one point higher."""
    evidence = _estimate(config, wave).copy()
    evidence[:, PERFORMANCE] += 1.0
    return evidence


stages.estimate, stages.rate_waves = estimate, stages.rate_wave_by_wave
selfcheck.EXPECTED = selfcheck.fingerprint()

if __name__ == "__main__":
    app.main()
