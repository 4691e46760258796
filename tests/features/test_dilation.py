import pytest
import torch
from torch.nn import Conv2d
from torch.nn.functional import conv2d

from segkit.errors import ConfigError
from segkit.features import ConvNetBank
from segkit.features.tracing import Trace
from tests.features.test_layers import assert_near, hooked, picture, torchvision_model


@pytest.mark.parametrize(
    ("network", "output_stride"), [("resnet18", 8), ("convnext_tiny", 16), ("mobilenet_v2", 16), ("vgg16", 8)]
)
def test_cells_of_the_former_maps_are_among_those_of_dilated_ones(network, output_stride):
    plain, dilated = Trace(network, None), Trace(network, None, output_stride=output_stride)
    former = {layer.node: layer for layer in plain.layers if layer.is_default}
    finer = {layer.node: layer for layer in dilated.layers if layer.is_default}
    assert former.keys() == finer.keys()
    maps = dict(dilated.outputs(picture(), finer))
    steps = set()
    for node, expected in plain.outputs(picture(), former):
        layer = finer[node]
        assert layer.stride == min(former[node].stride, output_stride)
        assert (layer.offset, layer.radius) == (former[node].offset, former[node].radius)
        step = int(former[node].stride / layer.stride)
        steps.add(step)
        found = maps[node][:, :, ::step, ::step]
        rows, cols = (min(found.shape[axis], expected.shape[axis]) for axis in (2, 3))
        assert rows * cols
        assert_near(found[:, :, :rows, :cols], expected[:, :, :rows, :cols])
    assert max(steps) == 32 / output_stride if network != "vgg16" else max(steps) == 16 / output_stride


def test_resnet_equals_torchvisions_own_dilation():
    trace = Trace("resnet50", None, output_stride=8)
    by_label = {layer.label: layer for layer in trace.layers}
    labels = ["layer2.3", "layer3.0", "layer3.5", "layer4.0", "layer4.2"]
    model = torchvision_model("resnet50", trace.state, replace_stride_with_dilation=[False, True, True])
    expected = hooked(model, labels, picture())
    found = trace.outputs(picture(), [by_label[label].node for label in labels])
    for label, (_, output) in zip(labels, found, strict=True):
        assert output.shape[2:] == (8, 8)
        assert_near(output, expected[label])


def naive(features, x, output_stride):
    """MobileNetV2 block by block, with convolutions that skip cells in place of strides; outputs of the blocks."""
    stride, rate, outputs = 1, 1, []
    for block in features:
        y = x
        convolutions = [module for module in block.modules() if isinstance(module, Conv2d)]
        is_strided = any(convolution.stride[0] > 1 for convolution in convolutions)
        is_removed = is_strided and 2 * stride > output_stride
        for module in block.modules():
            if isinstance(module, Conv2d):
                step = 1 if is_removed else module.stride[0]
                padding = rate * module.padding[0]
                y = conv2d(y, module.weight, None, step, padding, rate, module.groups)
            elif not list(module.children()):
                y = module(y)
        x = x + y if getattr(block, "use_res_connect", False) else y
        if is_strided:
            stride, rate = (stride, 2 * rate) if is_removed else (2 * stride, rate)
        outputs.append(x)
    return outputs


def test_mobilenet_equals_a_naive_dilated_pass():
    """In double precision: other orders of summation add up over 52 convolutions."""
    trace = Trace("mobilenet_v2", None, output_stride=8)
    nodes = [layer.node for layer in trace.layers if layer.is_default]
    image = picture().double()
    with torch.inference_mode():
        expected = naive(torchvision_model("mobilenet_v2", trace.state).double(), image, 8)
    trace._graph_module.double()
    found = [output for _, output in trace.outputs(image, nodes)]
    assert len(found) == len(expected) == 19
    for output, naive_output in zip(found, expected, strict=True):
        assert_near(output, naive_output, tolerance=1e-12)


def test_poolings_that_cannot_be_dilated_are_refused():
    with pytest.raises(
        ConfigError, match="network densenet121: its poolings cannot be dilated, leave output_stride out"
    ):
        ConvNetBank("densenet121", weights="random", output_stride=8).channels()
