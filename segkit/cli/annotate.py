"""The command ``segkit annotate``: draw in the browser, and see the prediction follow."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segkit.cli.options import ChannelsOption, SetOption, with_data
from segkit.cli.terminal import echo
from segkit.errors import ConfigError, one_line

if TYPE_CHECKING:
    from segkit.annotate.start import Asked
    from segkit.images import Reading
    from segkit.live.classes import LabelClass

_NEEDED = ("starlette", "uvicorn", "websockets")


def annotate(
    images: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of images (sub-folders too), or one image; without it, the page lets you choose."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for labels and model; by default NAME-annotations here. One of an earlier run is opened again.",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Names of the classes, separated by commas, the background first."),
    ] = None,
    masks: Annotated[
        Path | None,
        typer.Option(help="Folder of masks that exist already: a start for images without labels."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model file whose predictions are shown too, NAME.segkit.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="YAML file of options; see configs/.")
    ] = None,
    set_: SetOption = None,
    channels: ChannelsOption = None,
    network: Annotated[
        Path | None,
        typer.Option(
            "--network",
            help="YAML file of what the button Train a network trains; configs/tuned.yaml by default, whose first weights "
            "are downloaded once. Another one may name a file of them.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the page on this machine; 0 for any free one.")
    ] = 0,
    host: Annotated[
        str,
        typer.Option(
            help="Address of this machine that the page is served at; 0.0.0.0 for all, as in a container. Others who reach "
            "it need the token."
        ),
    ] = "127.0.0.1",
    base_url: Annotated[
        str,
        typer.Option(metavar="PATH", help="Path of the page behind a proxy, such as /user/me/proxy/8765/."),
    ] = "/",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name of a host that the page may be opened under, beside this machine's; repeatable.",
        ),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Annotate images in the browser; the prediction follows each stroke. Ctrl-C ends, all is saved."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ConfigError(
            f'segkit annotate needs {", ".join(missing)}, not installed here: pip install "segkit-bio[annotate]"'
        )
    echo("segkit annotate: starting ...")
    from segkit.annotate import remember, serve, serve_start
    from segkit.config.schema import Config
    from segkit.images.outputs import refuse_unwritable
    from segkit.live import LiveSession, Project
    from segkit.live.classes import check_classes, classes_of, classes_of_map
    from segkit.segmentation.segmenter import load

    settings = Config.load(config, with_data(set_, channels=channels))

    def read_classes(text: str) -> list[LabelClass]:
        return check_classes(classes_of(dict(enumerate(name.strip() for name in text.split(",")))))

    named = None if classes is None else read_classes(classes)
    trained = None if model is None else load(model)
    of_network = None if network is None else Config.load(network)
    reading = _reading(settings.data.reading, None if trained is None else trained.reading_)
    read_alike = settings.data.model_copy(
        update={"axes": reading.axes, "range": reading.range, "channels": reading.selected}
    )
    settings = settings.model_copy(update={"data": read_alike})

    def open_project(
        images: Path, output: Path | None, named: list[LabelClass] | None
    ) -> tuple[Project, LiveSession]:
        output = output or _default_output(images)
        refuse_unwritable(output / "project.json")
        if trained is not None and named is None and masks is None and not (output / "project.json").exists():
            named = classes_of_map(trained.label_map_)
        project = Project(images, output, classes=named, masks=masks, reading=reading)
        for message in project.messages:
            echo(one_line(message))
        try:
            session = LiveSession(project, config=settings, model=trained, network=of_network)
        except BaseException:
            project.close()
            raise
        remember(images, output)
        return project, session

    def open_asked(asked: Asked) -> tuple[Project, LiveSession]:
        chosen = read_classes(asked.classes) if asked.classes.strip() else named
        return open_project(Path(asked.images), Path(asked.output) if asked.output else None, chosen)

    served = {
        "host": host,
        "port": port,
        "base_url": base_url,
        "allow_hosts": allow_host or (),
        "open_browser": not no_browser,
        "debug": "--debug" in sys.argv,
    }
    if images is None:
        if output is not None or masks is not None:
            raise ConfigError("--output and --masks belong to images: name their folder too")
        serve_start(
            Path.cwd(),
            open_asked,
            notify=lambda address: echo(f"segkit annotate: {address} (Ctrl-C ends)"),
            **served,
        )
        echo("segkit annotate: ended")
        return
    output = output or _default_output(images)
    project, session = open_project(images, output, named)
    with project:
        serve(
            project,
            session,
            notify=lambda address: echo(f"segkit annotate: {address} (Ctrl-C ends; labels in {output})"),
            **served,
        )
    echo(f"segkit annotate: ended; labels are in {output / 'masks'}")


def _default_output(images: Path) -> Path:
    """Name the folder of labels after the images, in the folder where the command was given."""
    path = images.resolve()
    return Path(f"{path.stem if path.is_file() else path.name}-annotations")


def _reading(given: Reading, trained: Reading | None) -> Reading:
    """Choose how images are read: as the options say, else as the training images of the model were."""
    for one in filter(None, (given, trained)):
        if one.context:
            raise ConfigError(
                f"data.context={one.context}: planes are annotated one by one here: leave it out, give it to segkit train"
            )
    if given.range is not None and given.limits is None:
        raise ConfigError(
            f"data.range={given.range}: percentiles are those of training images: give LOW..HIGH here, such as 0..4095"
        )
    if trained is None:
        return given
    return replace(
        trained,
        axes=given.axes or trained.axes,
        range=given.range or trained.range,
        is_learnt=not given.range,
        selected=given.selected or trained.selected,
    )
