import pickle
import sys

import numpy as np
import pytest
import torch
from scipy import ndimage
from torchvision.models import get_model

from segkit.baselines import UNet
from segkit.baselines.networks import UNetwork
from segkit.errors import ConfigError, InputError
from segkit.images import LabelMap

THREE = LabelMap({0: "ground", 1: "disc", 2: "band"})


def picture(seed, n_channels=3, shape=(45, 53), n_classes=3):
    """A disc and, as a third class, a dark band, on a noisy ground; sides are no multiples of anything."""
    rng = np.random.default_rng(seed)
    rows, cols = np.indices(shape)
    mask = np.zeros(shape, dtype=np.uint8)
    mask[np.hypot(rows - rng.uniform(15, 25), cols - rng.uniform(15, 25)) < 10] = 1
    if n_classes == 3:
        mask[:, -10:] = 2
    values = np.array([0.4, 0.8, 0.1])[mask]
    image = ndimage.gaussian_filter(values, 0.5)[:, :, None] + 0.05 * rng.standard_normal(
        (*shape, n_channels)
    )
    return image.astype(np.float32), mask


def tiny(**options):
    defaults = {"n_filters": 4, "depth": 2, "crop": 32, "learning_rate": 0.01, "device": "cpu"}
    return UNet(**defaults | options)


def test_learns_an_easy_picture():
    images, masks = zip(*(picture(seed, n_classes=2) for seed in range(3)), strict=True)
    net = tiny(max_steps=80, eval_every=20).fit(images[:-1], masks[:-1])
    assert net.score(images[-1:], masks[-1:]) > 0.9


def test_probabilities_are_those_of_the_network_on_the_mirrored_image():
    image, mask = picture(0)
    net = tiny(max_steps=1, augment=False).fit(image, mask, label_map=THREE)
    probabilities = net.predict_proba(image)
    assert (probabilities.shape, probabilities.dtype) == ((45, 53, 3), np.float32)
    np.testing.assert_allclose(probabilities.sum(axis=2), 1, rtol=1e-5)
    np.testing.assert_array_equal(net.predict(image), probabilities.argmax(axis=2))
    mirrored = np.pad(image, ((0, 3), (0, 3), (0, 0)), mode="reflect")
    np.testing.assert_allclose(net.predict_proba(mirrored)[:45, :53], probabilities, atol=1e-6)


def test_levels_double_their_filters_and_parameters_are_counted():
    """Convolutions, without bias, and normalisations of each level, summed by hand for depth 1."""
    n, n_image_channels, n_classes = 4, 3, 2
    first = 9 * n_image_channels * n + 9 * n * n + 4 * n
    down = 9 * n * 2 * n + 9 * (2 * n) ** 2 + 4 * 2 * n
    enlarge = 4 * 2 * n * n + n
    up = 9 * 2 * n * n + 9 * n * n + 4 * n
    expected = first + down + enlarge + up + n * n_classes + n_classes
    network = UNetwork(n_image_channels, n_classes, n_filters=n, depth=1)
    assert sum(parameter.numel() for parameter in network.parameters()) == expected
    image, mask = picture(0)
    fitted = tiny(depth=1, max_steps=1, augment=False).fit(image, np.minimum(mask, 1))
    assert fitted.n_parameters_ == expected


def test_scores_move_with_the_image_by_its_stride():
    network = UNetwork(1, 2, n_filters=2, depth=2).eval()
    image = torch.zeros(1, 1, 96, 96)
    image[0, 0, 40:50, 40:52] = torch.rand(10, 12, generator=torch.Generator().manual_seed(0))
    moved = torch.roll(image, (4, -8), dims=(2, 3))
    with torch.no_grad():
        expected = torch.roll(network(image), (4, -8), dims=(2, 3))
        torch.testing.assert_close(network(moved)[..., 24:72, 24:72], expected[..., 24:72, 24:72])


def test_a_fitted_net_can_be_pickled():
    image, mask = picture(0)
    net = tiny(max_steps=1, augment=False).fit(image, mask, label_map=THREE)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(net)).predict(image), net.predict(image))


def test_options_that_do_not_fit_are_named():
    for name in ["n_filters", "depth"]:
        with pytest.raises(ConfigError, match=f"{name}=0: input should be greater than 0"):
            tiny(**{name: 0}).fit(*picture(0), label_map=THREE)


def on_encoder(**options):
    pytest.importorskip("segmentation_models_pytorch", reason="segmentation-models-pytorch is not installed")
    defaults = {"encoder": "mobilenet_v2", "crop": 64, "max_steps": 1, "augment": False, "device": "cpu"}
    return UNet(**defaults | options)


@pytest.fixture
def mobilenet(tmp_path):
    """Weights of MobileNetV2 by torchvision's names, with statistics that no batch has."""
    state = get_model("mobilenet_v2").state_dict()
    for name, value in state.items():
        if name.endswith("running_var"):
            value.fill_(3.0)
    path = tmp_path / "mobilenet.npz"
    np.savez(path, **{name: value.numpy() for name, value in state.items()})
    return path, state


def test_an_encoder_starts_at_its_weights_and_keeps_their_statistics(mobilenet):
    path, state = mobilenet
    image, mask = picture(0)
    net = on_encoder(weights=path, learning_rate=1e-12).fit(image, mask, label_map=THREE)
    encoder = net.network_.unet.encoder.state_dict()
    assert len(encoder) == 312
    for name, value in encoder.items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=1e-9)


def test_the_decoder_of_an_encoder_learns_its_own_statistics(mobilenet):
    net = on_encoder(weights=mobilenet[0]).fit(*picture(0), label_map=THREE)
    decoder = net.network_.unet.decoder.state_dict()
    assert any(decoder[name].abs().max() > 0 for name in decoder if name.endswith("running_mean"))


def test_an_encoder_from_scratch_learns_its_statistics():
    net = on_encoder().fit(*picture(0, n_channels=1), label_map=THREE)
    assert net.network_.unet.encoder.state_dict()["features.0.1.running_mean"].abs().max() > 0


def test_grey_images_become_three_channels_for_weights_of_three(mobilenet):
    net = on_encoder(weights=mobilenet[0], preprocessing="caffe").fit(
        *picture(0, n_channels=1), label_map=THREE
    )
    grey = net._normalise(np.full((1, 2, 2, 1), 0.5, dtype=np.float32))
    np.testing.assert_allclose(grey[0, 0, 0], [127.5 - 123.68, 127.5 - 116.779, 127.5 - 103.939], rtol=1e-4)
    with pytest.raises(
        InputError, match="images with 2 channels for pre-trained weights of three: give RGB or"
    ):
        on_encoder(weights=mobilenet[0]).fit(*picture(0, n_channels=2), label_map=THREE)


def test_sides_of_crops_are_multiples_of_the_encoders_stride():
    with pytest.raises(ConfigError, match="crop=48: give a multiple of 32 of at least 64 pixels"):
        on_encoder(crop=48).fit(*picture(0), label_map=THREE)


def test_without_the_package_the_cure_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "segmentation_models_pytorch", None)
    with pytest.raises(ConfigError) as raised:
        UNet(encoder="mobilenet_v2", crop=64, augment=False).fit(*picture(0), label_map=THREE)
    assert str(raised.value) == (
        "a U-Net with encoder needs segmentation-models-pytorch, which is not installed: "
        "pip install segkit-bio[baselines], or leave encoder out"
    )


def test_options_of_an_encoder_that_do_not_fit_are_named():
    for options, message in [
        (
            {"encoder": "vgg"},
            "encoder='vgg': input should be 'mobilenet_v2', 'resnet18', 'resnet34' or 'resnet50'",
        ),
        ({"preprocessing": "none"}, "preprocessing='none': input should be 'torchvision' or 'caffe'"),
        (
            {"weights": "imagenet"},
            "weights='imagenet' does nothing under encoder=None: leave it out, or change encoder",
        ),
        (
            {"encoder": "resnet18", "n_filters": 8},
            "n_filters=8 does nothing under encoder='resnet18': leave it out, or change encoder",
        ),
        (
            {"encoder": "resnet18", "preprocessing": "caffe"},
            "preprocessing='caffe' does nothing under weights=None: leave it out, or change weights",
        ),
    ]:
        with pytest.raises(ConfigError) as raised:
            UNet(**options).fit(*picture(0), label_map=THREE)
        assert str(raised.value) == message
