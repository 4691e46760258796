"""The command ``segkit inspect``: what a model is, and what is right and wrong with images and masks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from segkit.cli.options import OF_MASKS, data_option, read_data
from segkit.cli.terminal import echo
from segkit.errors import InputError, ModelFileError, count, one_line

_KNOWN = (*OF_MASKS, "range", "context", "channels", "instances", "only_annotated", "pair")


def inspect(
    path: Annotated[
        Path, typer.Argument(metavar="MODEL | IMAGES", help="A model file, a folder of images, or one image.")
    ],
    masks: Annotated[Path | None, typer.Argument(help="Masks of the images.")] = None,
    set_: Annotated[list[str] | None, data_option(*_KNOWN)] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Also show the options of a model, and explain the choices of its training."
        ),
    ] = False,
) -> None:
    """Show what a model is, or what is right and wrong with images, alone or with their masks."""
    from segkit.images import IMAGE_EXTENSIONS, inspect_images

    if not path.exists():
        raise InputError(f"{path}: no such file or folder: give a model file, or a folder of images")
    if masks is None and not path.is_dir() and path.suffix.lower() not in IMAGE_EXTENSIONS:
        _inspect_model(path, explain=explain)
        return
    data = read_data(set_, *_KNOWN)
    report = inspect_images(
        path,
        masks,
        **data.meanings,
        instances=data.instances,
        only_annotated=data.only_annotated,
        pattern=data.pair,
        reading=data.reading,
    )
    echo(report.describe())
    if report.faults:
        raise InputError(f"{count(len(report.faults), 'fault')} above: to be mended before training")


def _inspect_model(path: Path, *, explain: bool) -> None:
    from segkit.segmentation.model_file import find_faults, read_model
    from segkit.segmentation.segmenter import segmenter_of

    header, arrays = read_model(path)
    segmenter = segmenter_of(header, arrays, str(path))
    echo(describe_model(header, explain=explain))
    if explain:
        for line in [
            *segmenter.bank_.describe_training(),
            segmenter.objects_.describe(),
            *segmenter.alarms_.summarise(),
            *segmenter.alarms_.explain(),
        ]:
            echo(line)
    if faults := find_faults(segmenter):
        raise ModelFileError(f"{path}: {' '.join(faults)}")


def describe_model(header: dict[str, Any], *, explain: bool = False) -> str:
    """Show the header of a model file as a table, and explain the choices of its training."""
    from segkit.images import LabelMap
    from segkit.segmentation.summary import TrainingSummary, expected_scores, explain_training

    label_map, versions = LabelMap.from_dict(header["label_map"]), header["versions"]
    summary = TrainingSummary.from_dict(header["summary"])
    n_channels = header["n_image_channels"]
    is_numbered = header["objects"]["source"] == "instances"
    numbered = f"{' and '.join(label_map.names)}, objects numbered or checked one by one"
    classes = numbered if is_numbered else label_map.describe()
    kind = {1: "grey (1 channel)", 3: "3 channels, as RGB"}.get(n_channels, count(n_channels, "channel"))
    rows = [
        ("Classes", classes),
        ("Images", kind),
        *_reading_rows(header.get("reading") or {}),
        ("Learnt from", count(summary.n_images, "image")),
        ("Scores", expected_scores(summary)),
        ("Features", _name_bank(header["bank"])),
        ("Written by", f"segkit {versions['segkit']}, model format {header['format_version']}"),
    ]
    if explain:
        others = (f"{name} {version}" for name, version in versions.items() if name != "segkit")
        rows += [("With", ", ".join(others)), ("Training set", f"sha256 {summary.training_set_sha256}")]
        rows += [("Bank", option) for option in _bank_options(header["bank"])]
        rows += [("", line) for line in explain_training(summary, label_map)]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {one_line(text)}" for name, text in rows)


def _reading_rows(known: dict[str, Any]) -> list[tuple[str, str]]:
    """Describe how a model reads images, as far as it does not leave that to their files."""
    told = {
        "Axes": known.get("axes") or known.get("unnamed"),
        "Values": known.get("range"),
        "Context": known.get("context") and f"{count(known['context'], 'plane')} on either side",
        "Channels": ", ".join(known.get("channels") or known.get("selected", ())),
    }
    return [(name, str(text)) for name, text in told.items() if text]


def _name_bank(bank: dict[str, Any]) -> str:
    """Name a stored bank: its kind or network, and the group it is averaged over."""
    if bank["kind"] == "stacked":
        name = ", ".join(_name_bank(part) for part in bank["banks"])
    else:
        name = bank.get("network", bank["kind"])
    if "orbit" not in bank:
        return name
    turns = "turns and reflections" if bank["orbit"] == "d4" else f"{bank['orbit']} turns"
    return f"{name}, averaged over {turns}"


def _bank_options(bank: dict[str, Any]) -> list[str]:
    """List the options of a stored bank, or of each bank of a stack, in a line."""
    if bank["kind"] == "stacked":
        shared = {name: value for name, value in bank.items() if name == "normalization"}
        return [line for part in bank["banks"] for line in _bank_options(part | shared)]
    return [f"{bank['kind']}: {_listed({name: value for name, value in bank.items() if name != 'kind'})}"]


def _listed(value: Any) -> str:
    """Write the options of a bank without the brackets and quotes of Python."""
    if isinstance(value, dict):
        options = [f"{name} {_listed(entry)}" for name, entry in value.items() if entry is not None]
        return ", ".join(options) or "no options"
    if isinstance(value, list):
        return " and ".join(map(_listed, value))
    return str(value)
