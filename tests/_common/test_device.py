import numpy as np
import pytest
import torch

import segkit
from segkit import ScatteringBank
from segkit._common.device import told_if_full, torch_device
from segkit.errors import ConfigError, InputError
from segkit.features import ConvNetBank, ModuleBank, OrbitAveraged, TimmBank, TunedBank

HAS_CARD = torch.cuda.is_available()
BANKS = {
    "convnet": lambda: ConvNetBank("squeezenet1_0", weights="random", layers=["conv1"]),
    "dilated": lambda: ConvNetBank("mobilenet_v2", weights="random", layers=["features.8"], output_stride=8),
    "scaled": lambda: ConvNetBank("convnext_tiny", weights="random", layers=["features.1.0"]),
    "averaged": lambda: OrbitAveraged(
        ConvNetBank("resnet18", weights="random", layers=["layer1.0"], pyramid=[0.5])
    ),
    "scattering": lambda: ScatteringBank(J=1, L=3, frontend="torch", pixels=False),
    "modules": lambda: ModuleBank(({"n_scales": 1, "n_angles": 3},)),
}


def timm_bank():
    pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")
    return TimmBank("test_vit", weights="random", window=32)


def tuned_bank():
    """A network that was not trained."""
    from segkit.networks.pyramid import build

    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        weights = build("mobilenet_v2", None, 3, 2).state_dict()
    bank = TunedBank()
    bank.use_weights({f"1/0/{name}": value.half().numpy() for name, value in weights.items()})
    return bank


BANKS["timm"] = timm_bank
BANKS["tuned"] = tuned_bank
IMAGE = np.random.default_rng(0).random((40, 48, 3), dtype=np.float32)


def test_the_innermost_device_counts():
    assert torch_device() == torch.device("cpu")
    with segkit.device("auto"):
        assert torch_device().type == ("cuda" if HAS_CARD else "cpu")
        with segkit.device("cpu"):
            assert torch_device().type == "cpu"
        with segkit.device(None):
            assert torch_device().type == ("cuda" if HAS_CARD else "cpu")
    assert torch_device() == torch.device("cpu")


def test_unknown_devices_are_refused():
    with pytest.raises(ConfigError) as caught, segkit.device("gpu"):
        pass
    assert str(caught.value) == "device 'gpu': choose one of auto, cpu, cuda"


@pytest.mark.skipif(HAS_CARD, reason="this machine has a graphics card")
def test_a_missing_card_is_told_in_one_line():
    with (
        pytest.raises(
            ConfigError, match=r"^device cuda: torch sees no graphics card .* give cpu or auto"
        ) as caught,
        segkit.device("cuda"),
    ):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bank", BANKS)
def test_banks_compute_on_the_device(bank, monkeypatch):
    """Torch's device without data takes part in everything, and fails where results are read."""
    monkeypatch.setattr("segkit._common.device._devices", ["meta"])
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        BANKS[bank]().maps(IMAGE)


@pytest.mark.skipif(not HAS_CARD, reason="needs a graphics card of NVIDIA")
@pytest.mark.parametrize("bank", BANKS)
def test_a_card_computes_the_same_maps(bank):
    expected = BANKS[bank]().dense(IMAGE)
    with segkit.device("cuda"):
        found = BANKS[bank]().dense(IMAGE)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.skipif(not HAS_CARD, reason="needs a graphics card of NVIDIA")
def test_a_card_gives_the_same_labels():
    mask = (IMAGE.mean(axis=2) > 0.5).astype(np.uint8)
    bank = BANKS["convnet"]()
    segmenter = segkit.Segmenter(bank, training_pixels=400, selection_pixels=200, random_state=0)
    expected = segmenter.fit([IMAGE], [mask]).predict(IMAGE)
    with segkit.device("cuda"):
        assert (segmenter.predict(IMAGE) == expected).mean() > 0.999


def test_full_memory_is_told_and_other_errors_are_not_hidden():
    with pytest.raises(MemoryError), told_if_full():
        torch.empty(2**50, dtype=torch.uint8)
    with pytest.raises(InputError, match="memory of the graphics card is full"), told_if_full():
        raise torch.cuda.OutOfMemoryError
    with pytest.raises(RuntimeError, match="another"), told_if_full():
        raise RuntimeError("another")


def test_a_network_without_memory_is_not_an_image_that_is_too_small(monkeypatch):
    bank = BANKS["convnet"]()
    monkeypatch.setattr(type(bank._loaded()), "outputs", lambda *_: iter([torch.empty(2**50)]))
    with pytest.raises(MemoryError):
        bank.dense(IMAGE)
