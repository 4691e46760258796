"""Measurements behind the numbers of the pages: `python -m benchmarks --help`."""

# Name of a study, and of its rows in results/ -> its module.
STUDIES: dict[str, str] = {
    "demo": "benchmarks.demo",
}
