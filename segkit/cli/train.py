"""The command ``segkit train``: learn a model from annotated images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segkit._files import remove_unfinished_of
from segkit.cli.options import (
    DeviceOption,
    ImagesArgument,
    LevelOption,
    MemoryLimitOption,
    OnlyAnnotatedOption,
    OverwriteOption,
    QuietOption,
    SchedulerOption,
    SetOption,
    WorkersOption,
    spread_over,
)
from segkit.cli.terminal import (
    describe_alarms,
    describe_object_model,
    describe_training,
    echo,
    notifier,
    progress_bars,
)
from segkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segkit.config.schema import Config
    from segkit.images import Dataset

# The bank of a training without options.
DEFAULT_BANK: dict[str, Any] = {"name": "stacked"}
# The configuration whose banks depend on the images, and on the weights at hand.
_AUTO = Path("auto")
_NEEDED = (
    "Objects that are a matter of meaning (polyps, organs) need filters of networks: --config two-networks downloads "
    "their weights once"
)


def train(
    images: ImagesArgument,
    masks: Annotated[
        Path,
        typer.Argument(
            help="Folder of masks with the images' names; or, for a slide, GeoJSON of annotated regions."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write, NAME.segkit.")],
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="NAME|FILE|MODEL",
            help="Options: a name in configs/ (fast predicts in less time), a YAML file, or a model whose training is "
            "repeated on the same images. auto compares filter banks with weights at hand.",
        ),
    ] = None,
    other_images: Annotated[
        bool, typer.Option("--other-images", help="With a model as --config: allow other images.")
    ] = False,
    set_: SetOption = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of random numbers: the same seed gives the same model.")
    ] = None,
    only_annotated: OnlyAnnotatedOption = False,
    level: LevelOption = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Also explain the choices: channels, kernels, penalty, threshold."),
    ] = False,
    memory_limit: MemoryLimitOption = None,  # noqa: ARG001
    device: DeviceOption = "cpu",  # noqa: ARG001
    scheduler: SchedulerOption = None,
    n_workers: WorkersOption = None,
    quiet: QuietOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Learn a model from annotated images."""
    from segkit.config.recorded import read_training
    from segkit.config.schema import Config
    from segkit.images.outputs import refuse_existing, refuse_extension, refuse_unwritable

    refuse_extension(output, ".segkit")
    refuse_existing([output], overwrite=overwrite)
    refuse_unwritable(output)
    recorded = read_training(config) if config is not None and config.suffix == ".segkit" else None
    if other_images and recorded is None:
        raise ConfigError(
            "--other-images: it is for --config MODEL.segkit, whose model has images of its own; leave it out"
        )
    overrides = [*(set_ or []), *([] if seed is None else [f"seed={seed}"])]
    auto = config == _AUTO and not config.exists()
    if auto and any(override.partition("=")[0].split(".")[0] == "bank" for override in overrides):
        raise ConfigError("--config auto beside --set bank: leave one out")
    settings = recorded.configure(overrides) if recorded else Config.load(None if auto else config, overrides)
    only_annotated = only_annotated or (recorded is not None and recorded.only_annotated)
    remove_unfinished_of(output)
    dataset = _read_dataset(images, masks, settings, level, only_annotated=only_annotated)
    notify = notifier(quiet=quiet)
    for message in dataset.describe():
        notify(message)
    n_channels = dataset.images[0].shape[2]
    if auto:
        banks = _banks_at_hand(n_channels)
        settings = Config.from_options(settings.to_settings()["config"] | {"bank": banks})
        notify(_describe_banks(banks, n_channels, len(dataset.images)))
    segmenter = settings.build(z_spacing=dataset.z_spacing)
    if recorded is not None:
        for message in recorded.compare(segmenter, dataset, str(images), other_images=other_images):
            notify(message)
    with spread_over(scheduler, n_workers) as workers, progress_bars(quiet=quiet) as follow:
        segmenter.fit(
            dataset.images,
            dataset.masks,
            instances=dataset.instances,
            label_map=dataset.label_map,
            workers=workers,
            progress=follow,
        )
    segmenter.note_files(dataset.dtypes, dataset.pixel_sizes, dataset.reading)
    segmenter.save(
        output,
        embed_weights=settings.embeds_weights(segmenter.best_index_),
        settings=settings.to_settings(only_annotated=only_annotated),
    )
    summary, label_map = segmenter.summary_, segmenter.label_map_
    (echo if explain else notify)(describe_training(summary, label_map, dataset.stems, explain=explain))
    if lines := describe_alarms(segmenter.alarms_, explain=explain):
        (echo if explain else notify)(lines)
    if dataset.instances is not None:
        (echo if explain else notify)(describe_object_model(segmenter.objects_, explain=explain))
    notify(f"Model: {output} ({output.stat().st_size / 1e6:.1f} MB)")
    if advice := _advise(settings, n_channels, explain=explain):
        (echo if explain else notify)(advice)


def _read_dataset(
    images: Path, masks: Path, settings: Config, level: int | None, *, only_annotated: bool
) -> Dataset:
    """Read the annotated images, or the annotated regions of an image that is read by region."""
    from segkit.images import load_pairs
    from segkit.images.annotated_regions import read_annotated_regions
    from segkit.images.large_image import is_by_region, open_large

    data = settings.data
    if level is None and not is_by_region(images):
        return load_pairs(
            images,
            masks,
            labels=data.labels,
            unlabelled=data.unlabelled,
            masks_are=data.masks,
            instances=data.instances,
            only_annotated=only_annotated,
            reading=data.reading,
        )
    if data.model_fields_set:
        given = ", ".join(f"data.{name}" for name in sorted(data.model_fields_set))
        raise ConfigError(
            f"{given}: {images} is read by region, and the regions name their classes: leave it out"
        )
    with open_large(images, level or 0) as slide:
        return read_annotated_regions(slide, masks)


def _describe_banks(banks: Sequence[dict[str, Any]], n_channels: int, n_images: int) -> str:
    """Describe which banks are compared, or why there is only one."""
    best, *others = banks
    if not others and n_channels not in (1, 3):
        return f"Filter bank: the default. Networks see grey and RGB images; these have {n_channels} channels"
    if not others:
        return f"Filter bank: the default. {_NEEDED}"
    names = " and ".join(_networks_of(best))
    if n_images == 1:
        return f"Filter bank: networks ({names}). One image cannot tell which bank is better; two images or more can"
    return f"Filter bank: networks ({names}) or the default, whichever does better on images held out"


def _advise(settings: Config, n_channels: int, *, explain: bool) -> str:
    """Advise a user who named no bank what another one would need; empty where there is nothing to advise."""
    if "bank" in settings.model_fields_set or n_channels not in (1, 3):
        return ""
    if len(_banks_at_hand(n_channels)) > 1:
        return "Weights of networks are here. --config auto compares their filters with the default bank"
    return _NEEDED if explain else ""


def _banks_at_hand(n_image_channels: int) -> list[dict[str, Any]]:
    """List banks to compare, best guess first; a single training image takes the first."""
    if n_image_channels not in (1, 3):
        return [DEFAULT_BANK]
    networks = [bank for bank in _banks_of_networks() if all(map(_is_at_hand, _networks_of(bank)))]
    return [*networks[:1], DEFAULT_BANK]


def _networks_of(bank: dict[str, Any]) -> list[str]:
    """Name the networks of a stacked bank, each once."""
    return list(dict.fromkeys(part["name"] for part in bank["banks"] if "weights" in part))


def _banks_of_networks() -> list[dict[str, Any]]:
    """List banks of networks from ``two-networks``, best first: both networks, and SqueezeNet alone, which is small."""
    from segkit.config.read import read_options, shipped

    both = read_options(shipped("two-networks"))["bank"][0]
    squeezenet = [part for part in both["banks"] if part["name"] != "vgg19"]
    return [both, both | {"banks": squeezenet}]


def _is_at_hand(network: str) -> bool:
    from segkit.features.weights import imagenet_address, is_cached

    return is_cached(imagenet_address(network))
