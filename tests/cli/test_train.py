"""The bank of `segkit train`; the rest of the command is tested in test_commands.py."""

import numpy as np
import pytest
import tifffile
from torchvision import models

from segkit.cli.train import DEFAULT_BANK, _banks_at_hand, _networks_of
from segkit.config import shipped
from segkit.config.recorded import read_training
from segkit.config.schema import Config
from segkit.features.weights import cached_file, imagenet_address
from segkit.images import read_image, write_image, write_mask
from tests.cli.test_commands import picture

SMALL = ["--set", "training.pixels=400", "--set", "selection.pixels=200", "--set", "selection.n_features=40"]


@pytest.fixture
def folder(tmp_path):
    for seed in range(2):
        image, mask = picture(seed, (72, 80))
        write_image(tmp_path / "images" / f"{seed}.png", image)
        write_mask(tmp_path / "masks" / f"{seed}.png", 255 * mask)
    return tmp_path


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """Weights of SqueezeNet in torch's cache, where networks are looked for."""
    import torch

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    # random ones have another hash
    monkeypatch.setattr("segkit.features.weights._check_digest", lambda path, digest: None)
    file = cached_file(imagenet_address("squeezenet1_0"))

    def put():
        torch.manual_seed(0)
        file.parent.mkdir(parents=True)
        torch.save(models.squeezenet1_0(weights=None).state_dict(), file)

    return put


def train(segkit, folder, *options, images="images"):
    return segkit("train", folder / images, folder / "masks", "-o", folder / "m.segkit", *options)


def test_auto_compares_networks_at_hand_with_the_default_bank(folder, weights, segkit):
    weights()
    code, out, err = train(segkit, folder, "--config", "auto", *SMALL)
    assert code == 0, err
    assert "Filter bank: networks (squeezenet1_0) or the default, whichever does better" in out
    banks = read_training(folder / "m.segkit").configure([]).bank
    assert len(banks) == 2
    assert banks[1] == Config.from_options({"bank": DEFAULT_BANK}).bank
    assert "are here" not in out  # the user named a bank


def test_auto_takes_networks_with_one_image(folder, weights, segkit):
    weights()
    code, out, err = train(segkit, folder, "--config", "auto", *SMALL, images="images/0.png")
    assert code == 0, err
    assert "networks (squeezenet1_0). One image cannot tell which bank is better" in out


@pytest.mark.parametrize("n_images", [1, 2])
def test_auto_without_weights_tells_where_they_come_from(folder, weights, segkit, n_images):
    images = "images/0.png" if n_images == 1 else "images"
    code, out, err = train(segkit, folder, "--config", "auto", *SMALL, images=images)
    assert code == 0, err
    assert "Filter bank: the default. Objects that are a matter of meaning" in out
    assert "--config two-networks downloads their weights once" in out


def test_weights_at_hand_are_told_where_no_bank_is_named(folder, weights, segkit):
    assert "--config auto" not in train(segkit, folder, *SMALL)[1]
    weights()
    assert "Weights of networks are here. --config auto" in train(segkit, folder, *SMALL, "--overwrite")[1]


@pytest.mark.parametrize("option", ["bank.name=vgg16", "bank=[]"])
def test_one_bank_is_named(folder, segkit, option):
    code, _, err = train(segkit, folder, "--config", "auto", "--set", option)
    assert (code, err.strip()) == (2, "segkit: --config auto beside --set bank: leave one out")
    assert not (folder / "m.segkit").exists()


def test_a_file_of_that_name_is_taken(folder, segkit, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "auto").write_text("bank: {name: multiscale}")
    code, _, err = train(segkit, folder, "--config", "auto", *SMALL)
    assert code == 0, err
    assert read_training(folder / "m.segkit").configure([]).bank.name == "multiscale"


def test_auto_takes_the_default_bank_for_images_that_networks_do_not_see(folder, weights, segkit):
    weights()
    for path in (folder / "images").iterdir():
        five = np.repeat(read_image(path)[0].transpose(2, 0, 1)[:1], 5, axis=0)
        tifffile.imwrite(path.with_suffix(".tif"), five, metadata={"axes": "CYX"}, ome=True)
        path.unlink()
    code, out, err = train(segkit, folder, "--config", "auto", *SMALL)
    assert code == 0, err
    assert "Filter bank: the default. Networks see grey and RGB images; these have 5 channels" in out
    assert "--config auto" not in train(segkit, folder, *SMALL, "--overwrite")[1]


@pytest.mark.parametrize(
    ("networks", "n_channels", "expected"),
    [
        (["vgg19"], 3, []),
        (["squeezenet1_0"], 3, ["squeezenet1_0"]),
        (["vgg19", "squeezenet1_0"], 1, ["vgg19", "squeezenet1_0"]),
        (["vgg19", "squeezenet1_0"], 2, []),
    ],
)
def test_a_bank_of_networks_is_offered_with_all_its_weights(
    tmp_path, monkeypatch, networks, n_channels, expected
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for network in networks:  # nothing reads the files
        file = cached_file(imagenet_address(network))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    *found, default = _banks_at_hand(n_channels)
    assert default == DEFAULT_BANK
    assert [_networks_of(bank) for bank in found] == ([expected] if expected else [])
    if len(expected) == 2:
        first, _ = Config.load(shipped("two-networks")).bank
        assert Config.from_options({"bank": found[0]}).bank == first


def test_the_default_bank_is_that_of_a_training_without_options():
    assert Config.from_options({"bank": DEFAULT_BANK}).bank == Config.from_options({}).bank
