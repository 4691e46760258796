"""The model file: one safetensors file whose header carries JSON.

Opening a model never executes anything: arrays come from safetensors, the rest is JSON. The format
has a version of its own; a file of a version it does not know is refused, never guessed at.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit import __version__
from segkit.errors import ModelFileError, OutputError
from segkit.images.write import atomic

FORMAT_VERSION = 6
READABLE = (1, 2, 3, 4, 5, 6)
SUFFIX = ".segkit"
_KEY = "segkit"


def write_model(path: str | Path, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write a model file in one step: the old file stays until the new one is whole.

    Parameters
    ----------
    path : str or Path
        File to write; missing folders are made.
    header : dict
        JSON-able facts; the format version is added.
    arrays : dict of str to ndarray
        Arrays by name.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    from safetensors.numpy import save

    path = Path(path)
    text = json.dumps({"format_version": FORMAT_VERSION, **header}, allow_nan=False)
    data = save({name: np.asarray(array, order="C") for name, array in arrays.items()}, metadata={_KEY: text})
    try:
        with atomic(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}): choose a writable folder"
        ) from error


def read_model(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a model file.

    Returns
    -------
    header : dict
        What `write_model` was given, and ``format_version``.
    arrays : dict of str to ndarray
        Arrays by name.

    Raises
    ------
    ModelFileError
        If the file is absent, damaged, not a segkit model, or of another format version.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"{path}: no such model file; train one with segkit train")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise ModelFileError(f"{path}: not a segkit model; give a file written by segkit train")
            header: dict[str, Any] = json.loads(metadata[_KEY])
            if not isinstance(header, dict):
                raise ModelFileError(f"{path}: damaged header; copy it anew or train again")
            format_version = header.get("format_version")
            if format_version not in READABLE:
                raise ModelFileError(
                    f"{path}: model of format version {format_version}, this segkit reads "
                    f"{', '.join(map(str, READABLE))}; "
                    f"train it anew, or use the segkit that wrote it ({header.get('versions', {}).get('segkit', 'unknown')})"
                )
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise ModelFileError(
            f"{path}: damaged or not a segkit model ({error}); copy it anew or train again"
        ) from error
    return header, arrays


def digest_arrays(arrays: dict[str, NDArray[Any]]) -> str:
    """Hexadecimal sha256 of named arrays: names, shapes, types and values, in order of name."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def package_versions() -> dict[str, str]:
    """Versions of segkit and of the packages its numbers depend on."""
    packages = ("numpy", "scipy", "scikit-learn", "torch", "torchvision", "kymatio")
    return {"segkit": __version__} | {name: version(name) for name in packages}
