"""stream-rater with the next kernel version, which computes the same bits: `python -m ... run`."""

from stream_rater.columns import kernels

kernels.KERNEL_VERSION += 1  # before other modules read it

from stream_rater.cli import app  # noqa: E402
from stream_rater.runtime import selfcheck  # noqa: E402

selfcheck.EXPECTED = selfcheck.fingerprint()  # of which the version is a part

if __name__ == "__main__":
    app.main()
