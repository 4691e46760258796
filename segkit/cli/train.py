"""The command ``segkit train``: learn a model from annotated images."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segkit._common.files import files_of_parts, remove_unfinished_of
from segkit.cli import Stopped
from segkit.cli.options import (
    ChannelsOption,
    ImagesArgument,
    OverwriteOption,
    SetOption,
    with_data,
    workers,
)
from segkit.cli.terminal import progress_bars, say, warn
from segkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segkit._common import FloatArray
    from segkit.config.schema import Config, DataConfig
    from segkit.images import Dataset

# The bank of a training without options.
DEFAULT_BANK: dict[str, Any] = {"name": "stacked"}
# The encoder of the networks that are trained.
MOBILENET = "mobilenet_v2"
# What `--config tuned` adds to the default in the results that are shown.
GAIN_OF_NETWORKS = "from 0.74 to 0.82"
# The configuration whose banks depend on the images, and on the weights at hand.
_AUTO = Path("auto")
_NEEDED = (
    "Objects that are a matter of meaning (polyps, organs) need networks: --config two-networks downloads their weights "
    "once, --config tuned trains some"
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
            help="Options: a name in configs/ (fast predicts in less time, tuned trains networks), a YAML file, or a model "
            "whose training is repeated. auto compares the filter banks that are ready here.",
        ),
    ] = None,
    set_: SetOption = None,
    channels: ChannelsOption = None,
    pair: Annotated[
        str | None,
        typer.Option(
            "--pair",
            metavar="IMAGE=MASK",
            help="What images and masks of different names are called, with a star for what they share, such as "
            "'*_raw=*_labels': data.pair.",
        ),
    ] = None,
    groups: Annotated[
        Path | None,
        typer.Option(
            help="CSV file with a line for each image: its name without the ending, a comma, its group. Images of a "
            "group (a patient, a video) are held out together. Without it, pages of a file are."
        ),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Learn a model from annotated images. segkit inspect MODEL --explain then explains the choices."""
    from segkit.config.recorded import read_training
    from segkit.config.schema import Config
    from segkit.images.outputs import refuse_existing, refuse_extension, refuse_unwritable
    from segkit.segmentation.summary import summarise_training

    refuse_extension(output, ".segkit")
    refuse_existing([output], overwrite=overwrite)
    refuse_unwritable(output)
    overrides = with_data(set_, channels=channels, pair=pair)
    auto = config == _AUTO and not config.exists()
    if auto and any(override.partition("=")[0].split(".")[0] == "bank" for override in overrides):
        raise ConfigError("--config auto beside --set bank: leave one out")
    recorded = read_training(config) if config is not None and config.suffix == ".segkit" else None
    settings = recorded.configure(overrides) if recorded else Config.load(None if auto else config, overrides)
    remove_unfinished_of(output)
    dataset = _read_dataset(images, masks, settings.data)
    say(*dataset.describe())
    held_together = _group_of_each(dataset, groups) if groups else dataset.files
    n_channels = dataset.images[0].shape[2]
    if auto:
        banks = _banks_at_hand(dataset.images)
        settings = Config.from_options(settings.model_dump(mode="json") | {"bank": banks})
        say(_describe_banks(banks, n_channels, len(dataset.images)))
    segmenter = settings.build(z_spacing=dataset.z_spacing)
    if recorded:
        for note in recorded.compare(segmenter, dataset, held_together):
            warn(f"note: {note}")
    checkpoint = output.with_name(f".{output.name}.training") if _trains_networks(settings) else None
    if checkpoint is not None:
        remove_unfinished_of(checkpoint)
        if files_of_parts(checkpoint):
            say(
                f"Found {checkpoint} of a training that was stopped: with the same images and options it goes on from there"
            )
    try:
        with workers() as spread, progress_bars() as follow:
            segmenter.fit(
                dataset.images,
                dataset.masks,
                instances=dataset.instances,
                groups=held_together,
                label_map=dataset.label_map,
                n_jobs=spread,
                progress=follow,
                checkpoint=checkpoint,
            )
    except KeyboardInterrupt as stop:
        if checkpoint is not None and files_of_parts(checkpoint):
            raise Stopped("the same command goes on") from stop
        raise
    segmenter = segmenter.with_objects(**settings.objects.changes)
    segmenter.note_files(dataset.dtypes, dataset.pixel_sizes, dataset.reading)
    segmenter.save(
        output,
        embed_weights=settings.training.embed_weights,
        settings=settings.model_dump(mode="json"),
    )
    say(*summarise_training(segmenter.summary_, segmenter.label_map_, dataset.stems))
    held_out = segmenter.summary_.held_out
    if len(set(held_together)) < len(dataset.files) and held_out is not None and held_out.n_groups is None:
        one = "group" if groups else "file"
        say(
            f"One {one} holds nearly all of a class, so images were held out one by one: scores and intervals are for "
            f"further images like these; of another {one}, expect less."
        )
    say(*segmenter.alarms_.summarise())
    if dataset.instances is not None:
        say(segmenter.objects_.summarise())
    say(f"Model: {output} ({output.stat().st_size / 1e6:.1f} MB)")
    # to a user who named no bank
    if "bank" not in settings.model_fields_set:
        say(*_suggest(dataset.images))


def _read_dataset(images: Path, masks: Path, data: DataConfig) -> Dataset:
    """Read the annotated images, or the annotated regions of an image that is read by region."""
    from segkit.images.annotated_regions import read_annotated_regions
    from segkit.images.large_image import is_by_region, open_large

    if data.level is not None or is_by_region(images):
        data.refuse_others("level", here=f"for {images}, which is read by region")
        with open_large(images, data.level or 0) as slide:
            return read_annotated_regions(slide, masks)
    return data.load_pairs(images, masks)


def _group_of_each(dataset: Dataset, groups: Path) -> Sequence[str]:
    """Read the group of each image from a file."""
    from segkit.benchmark.protocol import read_groups

    group_of = read_groups(groups, dataset.stems, files=dataset.files)
    return [group_of[stem] for stem in dataset.stems]


def _describe_banks(banks: Sequence[dict[str, Any]], n_channels: int, n_images: int) -> str:
    """Describe which banks are compared, or why there is only one."""
    *others, last = map(_named, banks)
    if not others and n_channels not in (1, 3):
        return f"Filter bank: the default. Networks with weights see grey and RGB images; these have {n_channels} channels"
    if not others:
        return f"Filter bank: the default. {_NEEDED}"
    if n_images == 1:
        return f"Filter bank: {others[0]}. One image cannot tell which bank is better; two images or more can"
    return f"Filter bank: {', '.join(others)} or {last}, whichever does better on images held out"


def _banks_at_hand(images: Sequence[FloatArray]) -> list[dict[str, Any]]:
    """List banks to compare, best guess first; a single training image takes the first."""
    from segkit.config.read import read_options, shipped

    n_channels = images[0].shape[2]
    tuned, both = (read_options(shipped(name))["bank"][0] for name in ("tuned", "two-networks"))
    small = both | {"banks": [part for part in both["banks"] if part["name"] != "vgg19"]}
    networks = [bank for bank in (both, small) if n_channels in (1, 3) and _has_weights(*_networks_of(bank))]
    is_ready = _may_train_networks(images) and _has_albumentations() and _has_weights(MOBILENET)
    return [*([tuned] if is_ready else []), *networks[:1], DEFAULT_BANK]


def _suggest(images: Sequence[FloatArray]) -> list[str]:
    """Tell what networks that are trained would need, in a line at most."""
    if not _may_train_networks(images):
        return []
    needs = [
        "minutes instead of seconds",
        *([] if _has_albumentations() else ['first pip install "segkit-bio[tuned]"']),
        *([] if _has_weights(MOBILENET) else ["14 MB are downloaded once"]),
    ]
    auto = ". --config auto compares all that is ready here" if len(_banks_at_hand(images)) > 1 else ""
    return [
        f"Worth a try: --config tuned trains networks on your images ({'; '.join(needs)}). With five images it raised the "
        f"mean IoU of ten image sets {GAIN_OF_NETWORKS}{auto}"
    ]


def _may_train_networks(images: Sequence[FloatArray]) -> bool:
    """Return whether no image is too small for networks that are trained."""
    from segkit.features.tuned import LEAST_IMAGE

    return all(min(image.shape[:2]) >= LEAST_IMAGE for image in images)


def _has_weights(*networks: str) -> bool:
    """Return whether torchvision's weights of networks are in torch's cache."""
    from segkit.features.weights import imagenet_address, is_cached

    return all(is_cached(imagenet_address(network)) for network in networks)


def _has_albumentations() -> bool:
    """Return whether the package is installed that the training of networks needs."""
    return find_spec("albumentations") is not None


def _trains_networks(settings: Config) -> bool:
    """Return whether one of the banks is trained, which takes its time."""
    banks = settings.bank if isinstance(settings.bank, tuple) else (settings.bank,)
    parts = [part for bank in banks for part in (bank, *getattr(bank, "banks", ()))]
    return any(part.name == "tuned" for part in parts)


def _named(bank: dict[str, Any]) -> str:
    """Name a bank of `_banks_at_hand`."""
    if bank == DEFAULT_BANK:
        return "the default"
    if any(part["name"] == "tuned" for part in bank["banks"]):
        return "networks trained on your images"
    return f"networks ({' and '.join(_networks_of(bank))})"


def _networks_of(bank: dict[str, Any]) -> list[str]:
    """Name the networks of a stacked bank, each once."""
    return list(dict.fromkeys(part["name"] for part in bank["banks"] if "weights" in part))
