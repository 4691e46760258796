"""Which device the networks of filter banks compute on: the processor, or a graphics card that a caller asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from segkit.errors import ConfigError, InputError

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda")
# The devices that are set, the innermost last. They hold for all threads of the process.
_devices: list[str] = []


@contextmanager
def device(name: str | None) -> Iterator[None]:
    """Compute the networks and wavelets of filter banks on a device, for as long as the block of ``with`` lasts.

    Parameters
    ----------
    name : {"auto", "cpu", "cuda"} or None
        "cuda" is the first graphics card that torch sees, "auto" that card if there is one, and the processor if not.
        None changes nothing.

    Yields
    ------
    None
        Nothing.

    Raises
    ------
    ConfigError
        If there is no such device here.

    Notes
    -----
    Sums are in another order on a card, so that features differ in their last digits, and a few labels may too. The
    selection of channels, the kernels and the SVM compute on the processor. Without any choice everything does, so that
    a model does not depend on the machine.

    Examples
    --------
    >>> from segkit import device
    >>> with device("cpu"):
    ...     pass
    """
    if name is None:
        yield
        return
    _devices.append(_found(name))
    try:
        yield
    finally:
        _devices.pop()


def device_name() -> str:
    """Name the device that banks compute on: the processor unless a caller asked for another."""
    return _devices[-1] if _devices else "cpu"


def torch_device() -> torch.device:
    """Return the device that banks compute on."""
    import torch

    return torch.device(device_name())


def _found(name: str) -> str:
    """Find the device of a name."""
    if name not in DEVICES:
        raise ConfigError(f"device {name!r}: choose one of {', '.join(DEVICES)}")
    if name == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if name == "cuda":
        raise ConfigError(
            "device cuda: torch sees no graphics card of NVIDIA here: give cpu or auto, or install a driver and a torch "
            "with CUDA (https://pytorch.org/get-started)"
        )
    return "cpu"


@contextmanager
def told_if_full() -> Iterator[None]:
    """Turn torch's error of full memory into a MemoryError, and that of a full graphics card into one line."""
    try:
        yield
    except RuntimeError as error:  # torch itself may not be loaded
        if "DefaultCPUAllocator" in str(error):
            raise MemoryError from error
        if type(error).__name__ == "OutOfMemoryError":
            raise InputError(
                "the memory of the graphics card is full: give --device cpu (Python: segkit.device('cpu')), or smaller "
                "images"
            ) from error
        raise
