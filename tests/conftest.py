"""What all tests share: the folder of golden numbers and real data, and Hypothesis' profiles."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every run, so that a red build is never a matter of luck. To look for new
# ones: pytest --hypothesis-profile=wild
settings.register_profile("ci", derandomize=True, database=None, deadline=None)
settings.register_profile("wild", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile("ci")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared folder (golden numbers, data); where there is none, the test is skipped."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("STREAM_RATER_SHARED") or beside)
    if not (folder / "golden").is_dir():
        reason = f"no shared folder at {folder}: set STREAM_RATER_SHARED"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder
