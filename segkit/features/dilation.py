"""Dilated convolutions in place of strides, so that deep layers see detail.

Chen et al., Rethinking atrous convolution for semantic image segmentation, arXiv:1706.05587, section 3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from segkit.errors import ConfigError
from segkit.features.layers import submodule_of, window_of

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def dilate(module: GraphModule, network: str, output_stride: int) -> None:
    """Replace the strides of a network beyond one stride by dilation, in place; the weights stay.

    Every d-th cell of a dilated map is a cell of the former map, if d is the stride that was removed. Layers that depend on
    means over the image are no exception, but the means are over more cells.
    """
    # stride in pixels of each node's output, and cells between those that belong together
    reached: dict[Node, tuple[int, int]] = {}
    for node in module.graph.nodes:
        states = [reached[parent] for parent in node.all_input_nodes]
        stride, dilation = max(states, default=(1, 1))
        submodule = submodule_of(module, node)
        window = window_of(node, submodule)
        if window is not None:
            removed = window.stride if stride * window.stride > output_stride else 1
            if (dilation > 1 and window.kernel > 1) or removed > 1:
                _widen(submodule, dilation, removed, network)
            stride, dilation = stride * window.stride // removed, dilation * removed
        reached[node] = stride, dilation


def _widen(submodule: Any, dilation: int, removed: int, network: str) -> None:
    """Dilate a convolution or a pooling, and remove its stride."""
    from torch import nn

    if not isinstance(submodule, nn.Conv2d | nn.MaxPool2d) and (dilation > 1 or submodule is None):
        raise ConfigError(
            f"network {network}: its poolings cannot be dilated, leave output_stride out, or choose resnet50, "
            f"mobilenet_v2, ..."
        )
    for name in ("padding", "dilation"):
        if hasattr(submodule, name):
            setattr(submodule, name, _times(getattr(submodule, name), dilation))
    if removed > 1:
        submodule.stride = (1, 1)


def _times(value: int | tuple[int, ...], factor: int) -> int | tuple[int, ...]:
    return value * factor if isinstance(value, int) else tuple(part * factor for part in value)
