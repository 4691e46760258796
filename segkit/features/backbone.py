"""Networks of timm: their blocks, the position of the cells of each on the pixel grid, and their weights.

A network is looked at once on tensors without data. Weights go by timm's names, whatever part of a network runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from segkit.errors import ConfigError, WeightsError

if TYPE_CHECKING:
    import torch
    from torch import nn

State = dict[str, "torch.Tensor"]
# Windows without a given size have at least this side, enough for a cell to see an object.
_USUAL_WINDOW = 256
_N_NEAREST = 3


class Block(NamedTuple):
    """One block of a network; the first cell is centred on pixel `offset`, for a patch of 14 pixels 6.5."""

    name: str
    n_channels: int
    stride: int
    offset: float


class Backbone:
    """A network of timm with weights by timm's names (None draws random ones), cut after the deepest of some blocks."""

    def __init__(
        self, model: str, window: int, blocks: tuple[int, ...], state: State | None, *, random_state: int = 0
    ) -> None:
        with _seeded(random_state):
            whole = _create(model, window)
        if state is not None:
            state = _matched(model, window, blocks, state, whole)
        self._outputs = _Outputs(whole, blocks)
        needed = self._outputs.names
        if state is not None:
            whole.load_state_dict({name: state[name] for name in needed if name in state}, strict=False)
        self.state: State = {name: whole.state_dict()[name] for name in needed}

    def __call__(self, batch: torch.Tensor, depth: int) -> list[torch.Tensor]:
        """Compute the maps (1, n_channels, h, w) of the first blocks, on the device of the batch, and go no deeper."""
        return self._outputs.to(batch.device)(batch, depth)


class _Outputs:
    """Some blocks of a network, as timm gives them: `forward_intermediates`, or else its list of features."""

    def __init__(self, whole: nn.Module, blocks: tuple[int, ...]) -> None:
        names = {id(tensor): name for name, tensor in whole.state_dict(keep_vars=True).items()}
        self._given = hasattr(whole, "forward_intermediates")
        self._blocks, self._norm = list(blocks), _normalises(whole)
        if self._given:
            self._net = whole.eval()
            if hasattr(whole, "prune_intermediate_layers"):
                kept: Any = whole.prune_intermediate_layers  # untyped, as the rest of timm
                self._blocks = list(kept(self._blocks, prune_norm=not self._norm))
        else:
            from timm.models import FeatureListNet

            self._net = FeatureListNet(whole, out_indices=blocks).eval()
        left = self._net.state_dict(keep_vars=True).values()
        self.names = sorted(names[id(tensor)] for tensor in left if id(tensor) in names)

    def to(self, device: torch.device) -> _Outputs:
        """Move the network to a device; nothing happens where it is there already."""
        self._net.to(device)
        return self

    def __call__(self, batch: torch.Tensor, depth: int) -> list[torch.Tensor]:
        if not self._given:
            return list(self._net(batch))[:depth]
        options = {"norm": True} if self._norm else {}
        forward: Any = self._net.forward_intermediates
        return list(
            forward(
                batch,
                indices=self._blocks[:depth],
                stop_early=True,
                output_fmt="NCHW",
                intermediates_only=True,
                **options,
            )
        )


@lru_cache(maxsize=16)
def blocks_of(model: str, window: int) -> tuple[Block, ...]:
    """List the blocks of a network, first to last, without loading weights."""
    import torch

    with torch.device("meta"):
        whole = _create(model, window)
        info = [(str(entry["module"]), int(entry["reduction"])) for entry in _info(whole)]
        steps = _Steps(whole)
        try:
            outputs = _Outputs(whole, tuple(range(len(info))))(torch.empty(1, 3, window, window), len(info))
        except (RuntimeError, AssertionError, ValueError) as error:
            raise _refused(model, window, error) from error
    if any(stride * output.shape[2] != window for (_, stride), output in zip(info, outputs, strict=True)):
        raise ConfigError(
            f"model {model!r} leaves out the edges of images, so that its cells do not cover a window: choose another, "
            "such as resnet18 or vit_small_patch14_dinov2"
        )
    return tuple(
        Block(name, output.shape[1], stride, steps.offset(stride))
        for (name, stride), output in zip(info, outputs, strict=True)
    )


@lru_cache(maxsize=16)
def coarsest_stride(model: str) -> int:
    """Find the largest stride of the blocks of a network; windows are multiples of it."""
    import torch

    with torch.device("meta"):
        return max(int(entry["reduction"]) for entry in _info(_create(model, None)))


def usual_window(model: str) -> int:
    """Choose the side of windows: the least multiple of the coarsest stride from 256 pixels on."""
    stride = coarsest_stride(model)
    return stride * math.ceil(_USUAL_WINDOW / stride)


@lru_cache(maxsize=16)
def parameters_of(model: str, window: int, blocks: tuple[int, ...]) -> tuple[str, ...]:
    """Name the weights that some blocks need."""
    import torch

    with torch.device("meta"):
        return tuple(_Outputs(_create(model, window), blocks).names)


def configuration(model: str) -> Any:
    """Look up timm's description of a model's weights: mean and std of colours, licence, and where they are."""
    timm = import_timm()
    try:
        found = timm.is_model(model.partition(".")[0]) and timm.get_pretrained_cfg(model)
    except RuntimeError:  # a tag that the model does not have
        found = None
    if not found:
        raise ConfigError(
            f"model {model!r} is not one of timm's: the nearest are {', '.join(nearest_models(model))}; "
            'python -c "import timm; print(*timm.list_models())" lists all'
        )
    return found


def nearest_models(model: str) -> list[str]:
    """Return the names of models that are nearest to a name, with tags where it has one."""
    timm = import_timm()
    known = timm.list_models(pretrained="." in model)
    return get_close_matches(model, known, n=_N_NEAREST, cutoff=0)


def import_timm() -> Any:
    """Import timm."""
    try:
        return import_module("timm")
    except ImportError as error:
        raise ConfigError(
            'the bank timm needs timm, which is not installed: pip install "segkit-bio[foundation]"'
        ) from error


def _create(model: str, window: int | None) -> nn.Module:
    """Make a network without head; one whose size is fixed is made for the window."""
    timm = import_timm()
    found = configuration(model)
    options = {"img_size": window} if found.fixed_input_size and window is not None else {}
    try:
        created: nn.Module = timm.create_model(model, pretrained=False, num_classes=0, **options)
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        raise _refused(model, window, error) from error
    if not hasattr(created, "feature_info"):
        raise ConfigError(
            f"model {model!r} gives no maps of its blocks: choose another, such as vit_small_patch14_dinov2"
        )
    return created


def _refused(model: str, window: int | None, error: Exception) -> ConfigError:
    own = configuration(model).input_size[-1]
    cause = (str(error).splitlines() or [type(error).__name__])[0]
    return ConfigError(
        f"window {window}: {model} does not run on it ({cause}): give bank.window={own}, the size it was trained on"
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

    def __init__(self, whole: nn.Module) -> None:
        # For each input stride: (output stride, reach in pixels, shift in pixels) of the layer that reaches farthest.
        self._steps: dict[int, tuple[int, float, float]] = {}
        self._window: int | None = None
        for module in whole.modules():
            if _stride(module) > 1:
                module.register_forward_hook(self._note)
        whole.register_forward_pre_hook(self._start)

    def offset(self, stride: int) -> float:
        """Return the pixel that the centre of the first cell of a stride is at."""
        at, offset = 1, 0.0
        while at < stride:
            # A step without a layer of its own merges whole blocks of cells, whose centre is in their middle.
            then, _, shift = self._steps.get(at, (stride, 0.0, (stride - at) / 2))
            at, offset = then, offset + shift
        return offset

    def _start(self, _: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self._window = inputs[0].shape[-1]

    def _note(self, module: nn.Module, inputs: tuple[torch.Tensor, ...], _: torch.Tensor) -> None:
        size = inputs[0].shape[-1]
        if self._window is None:
            self._window = size
        at = self._window // size
        kernel = _number(getattr(module, "kernel_size", getattr(module, "filt_size", _stride(module))))
        dilation = _number(getattr(module, "dilation", 1))
        reach = dilation * (kernel - 1) / 2
        shift = (reach - _padding(module, size, kernel, dilation)) * at
        if at not in self._steps or reach * at > self._steps[at][1]:
            self._steps[at] = at * _stride(module), reach * at, shift


def _stride(module: nn.Module) -> int:
    """Return the stride of a layer that moves a kernel over a grid; 1 for others."""
    stride = getattr(module, "stride", 1) if not list(module.children()) else 1
    return _number(stride) if isinstance(stride, int | tuple | list) else 1


def _padding(module: nn.Module, size: int, kernel: int, dilation: int) -> float:
    """Return the padding on the near side; layers of TensorFlow's kind pad as much as a size needs."""
    if "Same" in type(module).__name__:
        stride = _stride(module)
        missing = (math.ceil(size / stride) - 1) * stride + (kernel - 1) * dilation + 1 - size
        return max(missing, 0) // 2
    padding = getattr(module, "padding", 0)
    return _number(padding) if isinstance(padding, int | tuple | list) else 0


def _number(value: int | Sequence[int]) -> int:
    return int(value) if isinstance(value, int) else int(value[0])


def _matched(model: str, window: int, blocks: tuple[int, ...], state: State, whole: nn.Module) -> State:
    """Match weights with a network: those that do not fit as they are are renamed and resized as timm does it."""
    from torch import Tensor

    needed = {name: whole.state_dict()[name] for name in parameters_of(model, window, blocks)}
    for key in ("state_dict", "model", "teacher"):
        inner: Any = state.get(key)
        state = inner if isinstance(inner, dict) else state
    given = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if _misfits(needed, given):
        given = _converted(given, whole)
    _check_state(model, needed, given)
    return {
        name: given[name].float() if given[name].is_floating_point() else given[name]
        for name in needed
        if name in given
    }


def _converted(state: State, whole: nn.Module) -> State:
    """Rename weights as timm does today, and resize positional embeddings to the window."""
    convert = getattr(import_module(type(whole).__module__), "checkpoint_filter_fn", None)
    if convert is None or not state:
        return state
    try:
        return dict(convert(dict(state), whole))
    except (KeyError, RuntimeError, ValueError, AttributeError, IndexError, AssertionError):
        return state  # weights of another network, which the comparison of names tells


def _misfits(needed: State, state: State) -> list[str]:
    """Name the weights that are missing or of another shape; counters of batches may be missing."""
    return [
        name
        for name, tensor in needed.items()
        if not (
            name.endswith("num_batches_tracked") if name not in state else state[name].shape == tensor.shape
        )
    ]


def _check_state(model: str, needed: State, state: State) -> None:
    """Refuse weights that lack some, or whose shapes are of another network."""
    misfits = _misfits(needed, state)
    if not misfits:
        return
    first, cure = misfits[0], f"give weights of {model}, by timm's names"
    if first in state:
        raise WeightsError(
            f"weights of {first} have shape {tuple(state[first].shape)}, {model} needs {tuple(needed[first].shape)}: {cure}"
        )
    held = ", ".join([*list(state)[:2], "..."]) if state else "no arrays"
    raise WeightsError(
        f"weights lack {len(misfits)} of the {len(needed)} arrays of {model}, such as {first}; they hold {held}: {cure}"
    )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's random numbers for the making of a network, and restore them afterwards."""
    import torch

    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        yield
