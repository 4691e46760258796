"""Networks of timm: their blocks, the position of the cells of each on the pixel grid, and their weights.

A network is looked at once on tensors without data. Weights go by timm's names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from segkit.errors import ConfigError
from segkit.features.networks import Layer, State, fit_weights

if TYPE_CHECKING:
    import torch
    from torch import nn

# Windows without a given size have at least this side, enough for a cell to see an object.
_USUAL_WINDOW = 256


class Backbone:
    """A network of timm with weights by timm's names; None draws random ones."""

    def __init__(self, network: str, window: int, state: State | None, *, random_state: int = 0) -> None:
        with _seeded(random_state):
            self._whole = _create(network, window).eval()
        blocks = blocks_of(network, window)
        own = self._whole.state_dict()
        expected = {name: own[name] for block in blocks for name in block.parameters}
        given = own if state is None else _matched(state, blocks[0], expected, self._whole)
        self.layers, self.missing, used = fit_weights(network, "timm", blocks, expected, given)
        self._whole.load_state_dict(used, strict=False)
        self.state: State = {name: own[name] for name in used}

    def __call__(self, batch: torch.Tensor, blocks: Sequence[int]) -> list[torch.Tensor]:
        """Compute the maps (1, n_channels, h, w) of some blocks, on the device of the batch, and go no deeper."""
        return _run(self._whole.to(batch.device), batch, blocks)


def _run(whole: nn.Module, batch: torch.Tensor, blocks: Sequence[int]) -> list[torch.Tensor]:
    forward: Any = whole.forward_intermediates  # untyped, as the rest of timm
    options = {"norm": True} if _normalises(whole) else {}
    return list(
        forward(
            batch,
            indices=list(blocks),
            stop_early=True,
            output_fmt="NCHW",
            intermediates_only=True,
            **options,
        )
    )


def _parameters(whole: nn.Module, n_blocks: int) -> list[tuple[str, ...]]:
    """Name the weights that each block needs, with those of all blocks below; the network is cut down to the first."""
    state = whole.state_dict(keep_vars=True)
    names = {id(tensor): name for name, tensor in state.items()}
    cut: Any = whole.prune_intermediate_layers
    prune_norm = not _normalises(whole)
    needed: list[tuple[str, ...]] = []
    for block in reversed(range(n_blocks)):
        cut([block], prune_norm=prune_norm)
        left = whole.state_dict(keep_vars=True).values()
        needed.append(tuple(sorted(names[id(tensor)] for tensor in left if id(tensor) in names)))
    return needed[::-1]


@lru_cache(maxsize=16)
def blocks_of(network: str, window: int) -> tuple[Layer, ...]:
    """List the blocks of a network, first to last, without loading weights."""
    import torch

    with torch.device("meta"):
        whole = _create(network, window).eval()
        info = [(str(entry["module"]), int(entry["reduction"])) for entry in _info(whole)]
        steps = _Steps(whole, window)
        try:
            outputs = _run(whole, torch.empty(1, 3, window, window), range(len(info)))
        except (RuntimeError, AssertionError, ValueError) as error:
            raise _refused(network, window, error) from error
        parameters = _parameters(whole, len(info))
    if any(stride * output.shape[2] != window for (_, stride), output in zip(info, outputs, strict=True)):
        raise ConfigError(
            f"network {network!r} leaves out the edges of images, so that its cells do not cover a window: choose another, "
            "such as resnet18 or vit_small_patch14_dinov2"
        )
    return tuple(
        Layer(name, output.shape[1], stride, steps.offset(stride), window - 1, own)
        for (name, stride), output, own in zip(info, outputs, parameters, strict=True)
    )


@lru_cache(maxsize=16)
def coarsest_stride(network: str) -> int:
    """Find the largest stride of the blocks of a network; windows are multiples of it."""
    import torch

    with torch.device("meta"):
        return max(int(entry["reduction"]) for entry in _info(_create(network, None)))


def usual_window(network: str) -> int:
    """Choose the side of windows: the least multiple of the coarsest stride from 256 pixels on."""
    stride = coarsest_stride(network)
    return stride * math.ceil(_USUAL_WINDOW / stride)


def configuration(network: str) -> Any:
    """Look up timm's description of a model's weights: mean and std of colours, licence, and where they are."""
    timm = import_timm()
    try:
        found = timm.is_model(network.partition(".")[0]) and timm.get_pretrained_cfg(network)
    except RuntimeError:  # a tag that the model does not have
        found = None
    if not found:
        known = timm.list_models(pretrained="." in network)
        nearest = get_close_matches(network, known, n=3, cutoff=0)
        raise ConfigError(
            f"network {network!r} is not one of timm's: the nearest are {', '.join(nearest)}; "
            'python -c "import timm; print(*timm.list_models())" lists all'
        )
    return found


def import_timm() -> Any:
    """Import timm."""
    try:
        return import_module("timm")
    except ImportError as error:
        raise ConfigError(
            'the bank timm needs timm, which is not installed: pip install "segkit-bio[foundation]"'
        ) from error


def _create(network: str, window: int | None) -> nn.Module:
    """Make a network without head; one whose size is fixed is made for the window."""
    timm = import_timm()
    found = configuration(network)
    options = {"img_size": window} if found.fixed_input_size and window is not None else {}
    try:
        created: nn.Module = timm.create_model(network, pretrained=False, num_classes=0, **options)
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        raise _refused(network, window, error) from error
    return created


def _refused(network: str, window: int | None, error: Exception) -> ConfigError:
    own = configuration(network).input_size[-1]
    cause = (str(error).splitlines() or [type(error).__name__])[0]
    return ConfigError(
        f"window {window}: {network} does not run on it ({cause}): give bank.window={own}, the size it was trained on"
    )


def _info(whole: nn.Module) -> list[dict[str, Any]]:
    """List timm's facts about the blocks of a network."""
    info: Any = whole.feature_info
    return [dict(entry) for entry in getattr(info, "info", info)]


def _normalises(whole: nn.Module) -> bool:
    """Return whether a network is a plain transformer with a last normalisation, which then follows each block."""
    from torch import nn

    grids = {(entry["num_chs"], entry["reduction"]) for entry in _info(whole)}
    last = getattr(whole, "norm", None)
    is_plain = len(grids) == 1 and not hasattr(whole, "neck")
    return is_plain and isinstance(last, nn.Module) and not isinstance(last, nn.Identity)


class _Steps:
    """Follow the layers of a network that make its grid coarser, to place the cells of each stride."""

    def __init__(self, whole: nn.Module, window: int) -> None:
        # For each input stride: (output stride, reach in pixels, shift in pixels) of the layer that reaches farthest.
        self._steps: dict[int, tuple[int, float, float]] = {}
        self._window = window
        for module in whole.modules():
            if _stride(module) > 1:
                module.register_forward_hook(self._note)

    def offset(self, stride: int) -> float:
        """Return the pixel that the centre of the first cell of a stride is at."""
        at, offset = 1, 0.0
        while at < stride:
            # A step without a layer of its own merges whole blocks of cells, whose centre is in their middle.
            then, _, shift = self._steps.get(at, (stride, 0.0, (stride - at) / 2))
            at, offset = then, offset + shift
        return offset

    def _note(self, module: nn.Module, inputs: tuple[torch.Tensor, ...], _: torch.Tensor) -> None:
        size = inputs[0].shape[-1]
        at = self._window // size
        kernel = _number(getattr(module, "kernel_size", getattr(module, "filt_size", _stride(module))))
        dilation = _number(getattr(module, "dilation", 1))
        reach = dilation * (kernel - 1) / 2
        shift = (reach - _padding(module, size, kernel, dilation)) * at
        if at not in self._steps or reach * at > self._steps[at][1]:
            self._steps[at] = at * _stride(module), reach * at, shift


def _stride(module: nn.Module) -> int:
    """Return the stride of a layer that moves a kernel over a grid; 1 for others."""
    return _number(getattr(module, "stride", 1), 1) if not list(module.children()) else 1


def _padding(module: nn.Module, size: int, kernel: int, dilation: int) -> float:
    """Return the padding on the near side; layers of TensorFlow's kind pad as much as a size needs."""
    if "Same" in type(module).__name__:
        stride = _stride(module)
        missing = (math.ceil(size / stride) - 1) * stride + (kernel - 1) * dilation + 1 - size
        return max(missing, 0) // 2
    return _number(getattr(module, "padding", 0), 0)


def _number(value: Any, default: int = 1) -> int:
    """Read one of two equal numbers; what is none has its default."""
    first = value[0] if isinstance(value, tuple | list) else value
    return int(first) if isinstance(first, int) else default


def _matched(state: State, first: Layer, expected: State, whole: nn.Module) -> State:
    """Match weights with a network: those that do not fit as they are are renamed and resized as timm does it."""
    from torch import Tensor

    for key in ("state_dict", "model", "teacher"):
        inner: Any = state.get(key)
        state = inner if isinstance(inner, dict) else state
    given = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    fits = all(given[name].shape == tensor.shape for name, tensor in expected.items() if name in given)
    convert = getattr(import_module(type(whole).__module__), "checkpoint_filter_fn", None)
    if (fits and given.keys() >= set(first.parameters)) or convert is None or not given:
        return given
    try:
        return dict(convert(given.copy(), whole))
    except (KeyError, RuntimeError, ValueError, AttributeError, IndexError, AssertionError):
        return given  # weights of another network, which the comparison of names tells


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's random numbers for the making of a network, and restore them afterwards."""
    import torch

    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        yield
