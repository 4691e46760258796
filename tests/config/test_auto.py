import pytest

from segkit.config import auto
from segkit.config.schema import Config
from segkit.features.weights import cached_file, imagenet_address


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Put weights of networks into torch's cache; empty files, for nothing reads them."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    def put(*networks):
        for network in networks:
            file = cached_file(imagenet_address(network))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

    return put


@pytest.mark.parametrize(
    ("networks", "expected"),
    [
        ([], []),
        (["vgg19"], []),
        (["squeezenet1_0"], ["squeezenet1_0"]),
        (["vgg19", "squeezenet1_0"], ["vgg19", "squeezenet1_0"]),
    ],
)
def test_a_bank_of_networks_is_offered_with_all_its_weights(cache, networks, expected):
    cache(*networks)
    *found, default = auto.banks_at_hand(3)
    assert default == auto.DEFAULT_BANK
    assert [auto.networks_of(bank) for bank in found] == ([expected] if expected else [])


def test_the_default_bank_is_that_of_a_training_without_options():
    assert Config.from_options({"bank": auto.DEFAULT_BANK}).bank == Config.from_options({}).bank


def test_the_bank_of_both_networks_is_the_first_of_the_configuration(cache):
    cache("vgg19", "squeezenet1_0")
    best, _ = auto.banks_at_hand(3)
    first, _ = Config.load(auto.shipped("two-networks")).bank
    assert Config.from_options({"bank": best}).bank == first


@pytest.mark.parametrize(("n_channels", "n_banks"), [(1, 2), (2, 1), (3, 2), (5, 1)])
def test_networks_are_offered_for_images_that_they_see(cache, n_channels, n_banks):
    cache("vgg19", "squeezenet1_0")
    assert len(auto.banks_at_hand(n_channels)) == n_banks
