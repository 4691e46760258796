"""Run studies, and write the tables of the pages.

    python -m benchmarks RUN [RUN ...] [--data DIR] [--weights DIR] [--quick] [--out DIR] [options of the study]
    python -m benchmarks tables

A study is a module with

- ``run(study)``: measures, and adds rows by ``study.row(where, function)``;
- ``TABLES``: name of a table -> function that makes its Markdown from the rows of the study;
- ``add_options(parser)``, where it needs options of its own. They are in ``study.options``.

``benchmarks.STUDIES`` lists the studies. The rows of a study are in results/STUDY.jsonl; a large study may have several
files, results/STUDY-PART.jsonl. A line is a row:

- what: kind of the row, usually the name of the study;
- where: its settings: set, method, seed ...;
- figures: what was measured;
- commit, date, seconds, machine: the code that made it (with a "+" if files were changed), the day, how long it took, and
  where. Rows of code that no commit holds name the commit that added them.

A row is written when it is measured: a run that was cut goes on where it stopped. Remove the rows that are to be measured
anew.

A page shows a table between ``<!-- table NAME -->`` and ``<!-- end -->``. ``python -m benchmarks tables`` writes tables and
figures anew from the rows; ``tests/benchmarks/test_pages.py`` compares them with the pages.

``--quick`` runs a small form, on made-up or few images: does it run? Its rows go to results/quick, which git ignores.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from benchmarks import STUDIES
from benchmarks.rows import RESULTS, MissingDataError, Study
from segkit.errors import SegkitError


def main(arguments: list[str] | None = None) -> None:
    asked = argparse.ArgumentParser(add_help=False)
    asked.add_argument("names", nargs="*")
    names = asked.parse_known_args(arguments)[0].names
    if names == ["tables"]:
        from benchmarks.pages import write_pages

        write_pages()
        return
    for name in [name for name in names if name in STUDIES] or [None]:
        run(name, arguments)


def run(name: str | None, arguments: list[str] | None) -> None:
    """Run a study by the options of the command line, which must be known to it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="+", choices=("tables", *STUDIES), metavar="RUN", help=", ".join(STUDIES)
    )
    parser.add_argument("--data", type=Path, help="folder of the data")
    parser.add_argument("--weights", type=Path, help="folder of network weights")
    parser.add_argument("--sets", nargs="+", help="folders of the data, in place of the study's own")
    parser.add_argument("--seeds", type=int, help="splits or draws, in place of the study's own number")
    parser.add_argument("--quick", action="store_true", help="small form: does it run?")
    parser.add_argument("--out", type=Path, help="folder of the rows")
    module = importlib.import_module(STUDIES[name]) if name else None
    if hasattr(module, "add_options"):
        module.add_options(parser.add_argument_group(f"options of {name}"))
    options = parser.parse_args(arguments)
    out = options.out or (RESULTS / "quick" if options.quick else RESULTS)
    study = Study(
        name,
        out,
        options.data,
        options.weights,
        options.sets,
        options.seeds,
        quick=options.quick,
        options=options,
    )
    print(f"== {name}", flush=True)
    try:
        module.run(study)
    except MissingDataError as error:
        if not options.quick:
            raise SystemExit(str(error)) from error
        print(f"skipped: {error}")
    except SegkitError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
