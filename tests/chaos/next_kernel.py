"""stream-rater with the next kernel version, whose bits are the same: `python -m ... run`."""

from stream_rater.rating import compiled

compiled.KERNEL_VERSION += 1  # before anybody has looked at it

from stream_rater import cli  # noqa: E402

if __name__ == "__main__":
    cli.main()
