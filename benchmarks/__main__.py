"""Run studies, and write the tables of the pages.

    python -m benchmarks RUN [RUN ...] [--data DIR] [--weights DIR] [--quick] [--out DIR] [options of the study]
    python -m benchmarks tables

A study is a module with

- ``run(study)``: measures, and adds rows by ``study.row(where, function)``;
- ``TABLES``: name of a table -> function that makes its Markdown from the rows of the study;
- ``add_options(parser)``, where it needs options of its own. They are in ``study.options``.

``benchmarks.STUDIES`` lists the studies. The rows of a study are in results/STUDY.jsonl; a large study may have several files,
results/STUDY-PART.jsonl. A line is a row:

- what: kind of the row, usually the name of the study;
- where: its settings: set, method, seed ...;
- figures: what was measured;
- commit, date, seconds, machine: the code that made it (with a "+" if files were changed), the day, how long it took, where.

A row is written when it is measured: a run that was cut goes on where it stopped. Remove the rows that are to be measured anew.

A page shows a table between ``<!-- table NAME -->`` and ``<!-- end -->``. ``python -m benchmarks tables`` writes the tables and
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
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="+", choices=("tables", *STUDIES), metavar="RUN", help=", ".join(STUDIES)
    )
    parser.add_argument("--data", type=Path, help="folder of the data")
    parser.add_argument("--weights", type=Path, help="folder of network weights")
    parser.add_argument("--quick", action="store_true", help="small form: does it run?")
    parser.add_argument("--out", type=Path, help="folder of the rows")
    names = parser.parse_known_args(arguments)[0].names
    if names == ["tables"]:
        from benchmarks.pages import write_pages

        write_pages()
        return
    modules = {name: importlib.import_module(STUDIES[name]) for name in names}
    for module in dict.fromkeys(modules.values()):
        if hasattr(module, "add_options"):
            module.add_options(parser)
    options = parser.parse_args(arguments)
    out = options.out or (RESULTS / "quick" if options.quick else RESULTS)
    for name, module in modules.items():
        print(f"== {name}", flush=True)
        study = Study(name, out, options.data, options.weights, quick=options.quick, options=options)
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
