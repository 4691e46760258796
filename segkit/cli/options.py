"""Arguments and options that several commands share, and the workers that `--workers` asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segkit._common import Workers
from segkit.errors import ConfigError

if TYPE_CHECKING:
    from segkit.config.schema import DataConfig

ImagesArgument = Annotated[Path, typer.Argument(help="Folder of images (sub-folders too), or one image.")]
ImagesOption = Annotated[
    Path | None,
    typer.Option(
        "--images",
        help="Folder of the images: measured, or shown in the report; they give outlines their size.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One option, for example bank.name=vgg16. May be repeated."
    ),
]
ChannelsOption = Annotated[
    str | None,
    typer.Option(
        help="Channels that are read, by name or number, such as DAPI,GFP or 1,3: data.channels. All by default."
    ),
]
OverlayOption = Annotated[
    bool, typer.Option("--overlay", help="Also write images with the contours drawn in.")
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume", help="Go on after a stop, or add to what is there: make what is missing or outdated."
    ),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace results that are there already.")]

# What `--workers` says: a number, "local", or an address.
WORKERS: ContextVar[str | None] = ContextVar("workers", default=None)
# Options of data of masks that are measured or scored.
OF_MASKS = ("axes", "labels", "unlabelled", "masks")


def folder_of_results(path: str) -> Path:
    """Read the path of a folder. An empty one is refused before `Path` takes it for the current folder."""
    from segkit.images.outputs import refuse_empty

    refuse_empty(path)
    return Path(path)


def data_option(*known: str) -> Any:
    """Declare the option of a command that knows some options of data only; see `read_data`."""
    told = f"How images and masks are read: data.{', data.'.join(known)}. May be repeated."
    return typer.Option("--set", metavar="data.KEY=VALUE", help=told)


def with_data(overrides: list[str] | None, **given: str | None) -> list[str]:
    """Add options of data that were given by names of their own; they are text, whatever YAML would make of it."""
    named = [f"data.{name}={json.dumps(text)}" for name, text in given.items() if text is not None]
    return [*(overrides or []), *named]


@contextmanager
def workers() -> Iterator[Workers | None]:
    """Start the workers that were asked for, and return what spreads work over them; None without any."""
    given = WORKERS.get()
    if given is None:
        yield None
        return
    from segkit._common.device import device_name
    from segkit.scale import Cluster

    if device_name() != "cpu":
        raise ConfigError(
            "--device beside --workers: workers compute on their processors; leave one of them out"
        )
    with Cluster(n_workers=int(given)) if given.isdecimal() else Cluster(given) as cluster:
        yield cluster.spread


def read_data(overrides: list[str] | None, *known: str) -> DataConfig:
    """Read the section data of a command that knows some of its options."""
    from segkit.config.schema import Config

    for override in overrides or []:
        if not override.strip().startswith("data."):
            name = override.partition("=")[0].strip()
            told = ", ".join(f"data.{one}" for one in known)
            cure = f"give data.{override.strip()}" if name in known else "leave it out"
            raise ConfigError(f"--set {override}: only options of data are known here ({told}): {cure}")
    data = Config.load(None, overrides or []).data
    data.refuse_others(*known)
    return data
