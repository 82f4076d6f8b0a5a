"""The normal functions against SciPy's."""

import numpy as np
import pytest
from scipy.stats import norm

from stream_rater.rating import normal

RELATIVE = 5e-13
"""SciPy's own log-density and log-tail are good to some 1e-13 where |z| is large."""


@pytest.mark.parametrize("z", np.linspace(-30.0, 30.0, 121))
def test_tails_and_hazard_are_scipys(z: float) -> None:
    """Phi and the hazard, from one tail to the other."""
    log_hazard = norm.logpdf(z) - norm.logsf(z)
    assert normal.below(z) == pytest.approx(norm.cdf(z), rel=RELATIVE)
    assert normal.hazard(z) == pytest.approx(np.exp(log_hazard), rel=RELATIVE)


@pytest.mark.parametrize("p", [1e-12, 1e-6, 0.01, 0.3, 0.5, 0.7, 0.999, 1.0 - 1e-9])
def test_the_quantile_undoes_the_distribution(p: float) -> None:
    """Phi^-1, from both sides."""
    assert normal.quantile(p) == pytest.approx(norm.ppf(p), rel=1e-12, abs=1e-12)
