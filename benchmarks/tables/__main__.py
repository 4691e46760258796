"""Measure one table or figure of a paper.

    python -m benchmarks.tables NAME [--quick] [--out DIR] [--data DIR]

writes DIR/NAME.json and DIR/NAME.md (NAME-quick with --quick). A run that is cut goes on where it stopped;
remove its files to start anew.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from benchmarks.common import result_path
from benchmarks.tables.common import DATA, MissingDataError

# Name of a table -> module that measures it.
TABLES = {
    "000-figure1": "xperm",
    "000-figure2": "mnist_cdf",
    "000-figure3": "spoken_digits",
    "000-figure4": "xperm_sizes",
    "002-table1": "molecules",
    "002-table2": "turned_digits",
    "002-table3": "natural_images",
    "003-table1": "positive_definite",
    "003-table2": "few_digits",
    "003-figure2": "moved_digits",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=TABLES, metavar="NAME", help=", ".join(TABLES))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds kernel-data and oracle")
    arguments = parser.parse_args()
    module = importlib.import_module(f"benchmarks.tables.{TABLES[arguments.name]}")
    try:
        module.run(arguments.name, quick=arguments.quick, out=result_path(arguments), data=arguments.data)
    except MissingDataError as error:
        if not arguments.quick:
            raise SystemExit(str(error)) from error
        print("skipped: no ../shared")


if __name__ == "__main__":
    main()
