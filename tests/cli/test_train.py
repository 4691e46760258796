"""The bank of `segkit train`; the rest of the command is tested in test_commands.py."""

import numpy as np
import pytest
import tifffile
from torchvision import models

from segkit.config.auto import DEFAULT_BANK
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
    code, out, err = train(segkit, folder, "--bank", "auto", *SMALL, "--explain")
    assert code == 0, err
    assert "Filter bank: networks (squeezenet1_0) or the default, whichever does better" in out
    banks = read_training(folder / "m.segkit").configure([]).bank
    assert len(banks) == 2
    assert banks[1] == Config.from_options({"bank": DEFAULT_BANK}).bank
    assert "are here" not in out  # the user named a bank


def test_auto_takes_networks_with_one_image(folder, weights, segkit):
    weights()
    code, out, err = train(segkit, folder, "--bank", "auto", *SMALL, images="images/0.png")
    assert code == 0, err
    assert "networks (squeezenet1_0). One image cannot tell which bank is better" in out


@pytest.mark.parametrize("n_images", [1, 2])
def test_auto_without_weights_tells_where_they_come_from(folder, weights, segkit, n_images):
    images = "images/0.png" if n_images == 1 else "images"
    code, out, err = train(segkit, folder, "--bank", "auto", *SMALL, images=images)
    assert code == 0, err
    assert "Filter bank: the default. Objects that are a matter of meaning" in out
    assert "--config two-networks downloads their weights once" in out


def test_weights_at_hand_are_told_where_no_bank_is_named(folder, weights, segkit):
    assert "--bank" not in train(segkit, folder, *SMALL)[1]
    weights()
    assert "Weights of networks are here. --bank auto" in train(segkit, folder, *SMALL, "--overwrite")[1]


def test_a_bank_has_its_name(folder, segkit):
    code, _, err = train(segkit, folder, "--bank", "multiscale", *SMALL)
    assert code == 0, err
    assert read_training(folder / "m.segkit").configure([]).bank.name == "multiscale"
    code, _, err = train(segkit, folder, "--bank", "multiscal", "--overwrite")
    assert code == 2
    assert "the nearest is multiscale" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config", "fast"], "--bank beside --config: it has a bank already; leave one out"),
        (["--fast"], "--bank beside --fast: it has a bank already; leave one out"),
        (["--from", "x.segkit"], "--bank beside --from: it has a bank already; leave one out"),
        (["--set", "bank.name=vgg16"], "--bank beside --set bank: leave one out"),
        (["--set", "bank=[]"], "--bank beside --set bank: leave one out"),
    ],
)
def test_one_bank_is_named(folder, segkit, options, message):
    code, _, err = train(segkit, folder, "--bank", "auto", *options)
    assert (code, err.strip()) == (2, f"segkit: {message}")
    assert not (folder / "m.segkit").exists()


def test_auto_takes_the_default_bank_for_images_that_networks_do_not_see(folder, weights, segkit):
    weights()
    for path in (folder / "images").iterdir():
        five = np.repeat(read_image(path)[0].transpose(2, 0, 1)[:1], 5, axis=0)
        tifffile.imwrite(path.with_suffix(".tif"), five, metadata={"axes": "CYX"}, ome=True)
        path.unlink()
    code, out, err = train(segkit, folder, "--bank", "auto", *SMALL)
    assert code == 0, err
    assert "Filter bank: the default. Networks see grey and RGB images; these have 5 channels" in out
    assert "--bank" not in train(segkit, folder, *SMALL, "--overwrite")[1]
