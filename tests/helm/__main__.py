"""`make chart`: writes what is made of the chart, for a person to read and to commit."""

from tests.helm import strimzi
from tests.helm.chart import CHART, GOLDEN, documentation, rendered

GOLDEN_CASES = ("separate", "secured", "serving")
"""The defaults, nearly everything that can be set of workers, and of the API."""


def main() -> None:
    """The chart's README, the example for Strimzi, and the golden renders."""
    (CHART / "README.md").write_text(documentation())
    strimzi.FILE.write_text(strimzi.text())
    for case in GOLDEN_CASES:
        (GOLDEN / f"{case}.yaml").write_text(rendered(case))


if __name__ == "__main__":
    main()
