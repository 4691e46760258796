"""The command ``segkit combine``: images whose channels lie in several files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segkit.cli.options import OverwriteOption, data_option, folder_of_results, read_data
from segkit.cli.terminal import progress_bars, say
from segkit.errors import count


def combine(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Folders whose files have the same names, or patterns such as 'plate/*_w1', a source for each channel.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the images of all channels.",
            parser=folder_of_results,
            metavar="PATH",
        ),
    ],
    set_: Annotated[list[str] | None, data_option("axes")] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Join channels that lie in files of their own, or maps of other programs, into one image each."""
    from segkit.images import combine as join

    reading = read_data(set_, "axes").reading
    with progress_bars() as progress:
        written = join(sources, output, reading=reading, overwrite=overwrite, progress=progress)
    names = next(iter(written.values()))
    say(f"{count(len(written), 'image')} of {count(len(names), 'channel')} ({', '.join(names)}): {output}")
