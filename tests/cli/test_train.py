"""The bank of `segkit train`; the rest of the command is tested in test_commands.py."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import tifffile
import torch
from torchvision import models

from segkit import load
from segkit.cli.train import (
    DEFAULT_BANK,
    GAIN_OF_NETWORKS,
    _banks_at_hand,
    _describe_banks,
    _networks_of,
    _suggest,
)
from segkit.config import shipped
from segkit.config.recorded import read_training
from segkit.config.schema import Config
from segkit.features.weights import cached_file, imagenet_address
from segkit.images import read_image, write_image, write_mask
from segkit.networks.training import Trainings
from tests.cli.test_commands import picture

FEW_STEPS = pytest.mark.filterwarnings(
    "ignore:none of the .* separates the classes", "ignore:the model gives .* everywhere"
)
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
    assert "Often better" not in out  # the user named a bank


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
    assert "--config two-networks downloads their weights once, --config tuned trains some" in out


def test_what_tuned_networks_need_is_told_where_no_bank_is_named(folder, weights, segkit, monkeypatch):
    start = "Worth a try: --config tuned trains networks on your images (minutes instead of seconds"

    def last(*options):
        return train(segkit, folder, *SMALL, *options)[1].splitlines()[-1]

    gain = f"). With five images it raised the mean IoU of ten image sets {GAIN_OF_NETWORKS}"
    assert last() == f"{start}; 14 MB are downloaded once{gain}"
    weights()
    assert last("--overwrite").endswith(f"once{gain}. --config auto compares all that is ready here")
    cached_file(imagenet_address("mobilenet_v2")).touch()
    assert last("--overwrite") == f"{start}{gain}. --config auto compares all that is ready here"
    monkeypatch.setitem(sys.modules, "albumentations", None)
    assert f'{start}; first pip install "segkit-bio[tuned]"{gain}. --config' in last("--overwrite")


def test_tuned_networks_are_not_offered_for_small_images(weights):
    weights()
    cached_file(imagenet_address("mobilenet_v2")).touch()
    enough, small = np.zeros((32, 40, 1)), np.zeros((40, 31, 1))
    assert len(_suggest([enough])) == 1
    assert _suggest([enough, small]) == []
    assert len(_banks_at_hand([enough])) == 1 + len(_banks_at_hand([enough, small]))


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
    told = "Filter bank: the default. Networks with weights see grey and RGB images; these have 5 channels"
    assert told in out
    assert "--config auto" not in train(segkit, folder, *SMALL, "--overwrite")[1]


@pytest.mark.parametrize(
    ("networks", "n_channels", "expected"),
    [
        (["vgg19"], 3, []),
        (["squeezenet1_0"], 3, ["squeezenet1_0"]),
        (["vgg19", "squeezenet1_0"], 1, ["vgg19", "squeezenet1_0"]),
        (["vgg19", "squeezenet1_0"], 2, []),
        (["vgg19", "squeezenet1_0", "mobilenet_v2"], 3, ["vgg19", "squeezenet1_0"]),
        (["vgg19", "mobilenet_v2"], 2, []),
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
    *found, default = _banks_at_hand([np.zeros((32, 32, n_channels))])
    assert default == DEFAULT_BANK
    if "mobilenet_v2" in networks:
        assert Config.from_options({"bank": found.pop(0)}).bank == Config.load(shipped("tuned")).bank[0]
    assert [_networks_of(bank) for bank in found] == ([expected] if expected else [])
    if len(expected) == 2:
        first, _ = Config.load(shipped("two-networks")).bank
        assert Config.from_options({"bank": found[0]}).bank == first


def test_banks_that_are_compared_are_named():
    tuned, networks = (
        {"name": "stacked", "banks": [{"name": "tuned", "weights": "w"}, {"name": "multiscale"}]},
        {"name": "stacked", "banks": [{"name": "vgg19", "weights": "w"}]},
    )
    banks = [tuned, networks, DEFAULT_BANK]
    told = _describe_banks(banks, 3, 2)
    assert told == (
        "Filter bank: networks trained on your images, networks (vgg19) or the default, whichever does better on images "
        "held out"
    )
    assert "bank: networks trained on your images. One image cannot tell" in _describe_banks(banks, 3, 1)
    assert "bank: networks trained on your images or the default" in _describe_banks(banks[::2], 5, 2)


@FEW_STEPS
def test_an_interrupted_training_of_networks_goes_on(folder, segkit, monkeypatch):
    options = [*SMALL, "--set", "bank={name: tuned, weights: random, pyramid: [1], n_steps: 2}"]
    steps, step = [], Trainings.step

    def interrupted(trainings, n_steps):
        steps.append(trainings.n_steps)
        if len(steps) == 2:
            raise KeyboardInterrupt
        step(trainings, n_steps)

    monkeypatch.setattr(Trainings, "step", interrupted)
    monkeypatch.setattr("segkit.features.tuned._SAVE_EVERY", 1)
    monkeypatch.setattr("segkit.features.tuned._STEPS_AT_ONCE", 1)
    code, _, err = train(segkit, folder, *options)
    assert (code, err) == (130, "segkit: interrupted: the same command goes on\n")
    checkpoint = folder / ".m.segkit.training"
    saved = checkpoint.read_bytes()

    code, _, err = train(segkit, folder, *options, "--set", "bank.n_steps=3")
    assert (code, err.count("\n")) == (2, 1)
    assert (
        f"{checkpoint} comes from other images, masks or options, or another segkit: repeat that training, or delete"
        in err
    )
    assert checkpoint.read_bytes() == saved

    code, out, err = train(segkit, folder, *options)
    assert code == 0, err
    assert (
        f"Found {checkpoint} of a training that was stopped: with the same images and options it goes on from there"
        in out
    )
    assert steps == [0, 1, 1]
    assert not checkpoint.exists()


@FEW_STEPS
def test_a_full_disk_ends_a_training_of_networks_in_one_line(folder, segkit, monkeypatch):
    options = [*SMALL, "--set", "bank={name: tuned, weights: random, pyramid: [1], n_steps: 3}"]
    save, n_saved = torch.save, []

    def save_until_full(content, file):
        n_saved.append(1)
        if len(n_saved) == 2:
            Path(file).write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        save(content, file)

    monkeypatch.setattr(torch, "save", save_until_full)
    monkeypatch.setattr("segkit.features.tuned._SAVE_EVERY", 1)
    monkeypatch.setattr("segkit.features.tuned._STEPS_AT_ONCE", 1)
    code, _, err = train(segkit, folder, *options)
    assert (code, err.count("\n")) == (2, 1), err
    assert "the disk is full: free some space and run the same command again" in err
    assert sorted(path.name for path in folder.glob(".m.*")) == [".m.segkit.training"]
    code, out, err = train(segkit, folder, *options)
    assert code == 0, err
    assert "it goes on from there" in out


@pytest.mark.filterwarnings("ignore:none of the .* separates the classes")
@pytest.mark.slow
def test_each_of_several_banks_of_networks_goes_on(folder, segkit, monkeypatch):
    tuned = "{name: tuned, weights: random, pyramid: [1], n_steps: %d}"
    banks = f"bank=[{{name: multiscale}}, {tuned % 1}, {{banks: [{tuned % 2}, {tuned % 3}]}}]"
    steps, step = [], Trainings.step

    def interrupted(trainings, n_steps):
        steps.append(trainings.n_steps)
        if len(steps) == 6:  # the last one
            raise KeyboardInterrupt
        step(trainings, n_steps)

    monkeypatch.setattr(Trainings, "step", interrupted)
    monkeypatch.setattr("segkit.features.tuned._SAVE_EVERY", 1)
    monkeypatch.setattr("segkit.features.tuned._STEPS_AT_ONCE", 1)
    code, _, err = train(segkit, folder, *SMALL, "--set", banks)
    assert code == 130, err
    assert len(list(folder.glob(".m.segkit.training*"))) == 3
    code, _, err = train(segkit, folder, *SMALL, "--set", banks)
    assert code == 0, err
    assert steps == [0, 0, 1, 0, 1, 2, 2]
    assert not list(folder.glob(".m.*"))


@pytest.mark.slow
def test_a_killed_training_of_networks_ends_with_the_same_model(folder, tmp_path):
    bank = "bank={name: tuned, weights: random, pyramid: [1], n_steps: 55}"
    given = [
        sys.executable,
        "-m",
        "segkit",
        "train",
        folder / "images",
        folder / "masks",
        *SMALL,
        "--set",
        bank,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*given, "-o", folder / "whole.segkit"], check=True, env=environment)
    killed = subprocess.Popen([*given, "-o", folder / "m.segkit"], env=environment)
    while not (folder / ".m.segkit.training").exists():
        assert killed.poll() is None
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    assert not (folder / "m.segkit").exists()
    subprocess.run([*given, "-o", folder / "m.segkit"], check=True, env=environment)
    assert (folder / "m.segkit").read_bytes() == (folder / "whole.segkit").read_bytes()
    assert sorted(path.name for path in folder.glob(".*")) == []


def test_a_state_of_networks_is_nothing_to_other_trainings(folder, segkit):
    checkpoint = folder / ".m.segkit.training"
    checkpoint.touch()
    code, out, _ = train(segkit, folder, *SMALL, "--set", "bank.name=multiscale")
    assert code == 0
    assert "Found" not in out
    assert checkpoint.exists()


def test_the_default_bank_is_that_of_a_training_without_options():
    assert Config.from_options({"bank": DEFAULT_BANK}).bank == Config.from_options({}).bank


def refused(message):
    def fail(*_, **__):
        raise AssertionError(message)

    return fail


@pytest.fixture
def nothing_runs(monkeypatch):
    """No filter is computed and no network trained."""
    monkeypatch.setattr("segkit.features.FilterBank.sample", refused("filters were computed"))
    monkeypatch.setattr("segkit.networks.training.Trainings.step", refused("a network was trained"))


# the bank that lacks something comes last
LACKING = "bank=[{name: multiscale}, {name: tuned, weights: %s}]"


def test_tuned_networks_without_network_and_file(folder, segkit, tmp_path, monkeypatch, nothing_runs):
    def unreachable(*_, **__):
        raise URLError("no route")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", unreachable)
    code, _, err = train(segkit, folder, "--set", LACKING % "imagenet")
    assert (code, err.count("\n")) == (2, 1)
    assert "mobilenet_v2-b0353104.pth cannot be downloaded (no route)" in err
    assert str(tmp_path / "torch" / "hub" / "checkpoints") in err
    assert "--set bank.0.banks.0.weights=FILE" in err
    assert "take the default bank, which needs none" in err


def test_tuned_networks_without_albumentations(folder, segkit, monkeypatch, nothing_runs):
    monkeypatch.setitem(sys.modules, "albumentations", None)
    code, _, err = train(segkit, folder, "--set", LACKING % "random")
    assert (code, err.count("\n")) == (2, 1)
    assert "pip install segkit-bio[tuned], or take the default bank" in err


def test_tuned_networks_with_weights_of_another_network(folder, segkit, nothing_runs):
    np.savez(folder / "w.npz", conv=np.zeros(3))
    code, _, err = train(segkit, folder, "--set", LACKING % (folder / "w.npz"))
    assert (code, err.count("\n")) == (2, 1)
    assert "weights of another network: 255 of 255 that mobilenet_v2 needs are absent" in err


def test_tuned_networks_for_small_images(folder, segkit, nothing_runs):
    image, mask = picture(3, (31, 80))
    write_image(folder / "images" / "small.png", image)
    write_mask(folder / "masks" / "small.png", 255 * mask)
    code, _, err = train(segkit, folder, "--set", LACKING % "random")
    assert (code, err.count("\n")) == (2, 1)
    assert "image 2 has 31 x 80 pixels, networks need 32 x 32: leave it out, or take the default bank" in err


def test_settings_of_objects_are_those_of_the_model(folder, segkit):
    """Also of a training that is repeated, where other ones win."""
    code, _, err = train(
        segkit, folder, *SMALL, "--set", "objects.smallest=7", "--set", "objects.fill_holes=false"
    )
    assert (code, err) == (0, "")
    (folder / "m.segkit").rename(folder / "first.segkit")
    objects = load(folder / "first.segkit").objects_
    assert (objects.splitter.least_area, objects.splitter.fills_holes, objects.is_by_hand) == (7, False, True)
    code, *_ = train(segkit, folder, "--config", str(folder / "first.segkit"), "--set", "objects.smallest=9")
    assert code == 0
    again = load(folder / "m.segkit").objects_
    assert (again.splitter.least_area, again.splitter.fills_holes) == (9, False)
    code, _, err = train(segkit, folder, "--set", "objects.depth=-1", "--overwrite")
    assert code == 2
    assert err.startswith("segkit: objects.depth=-1: ")


def test_pairs_of_other_names_are_told_by_a_pattern(segkit, folder):
    for path in (folder / "masks").iterdir():
        path.rename(path.with_name(f"drawn {path.stem} v2.png"))
    line = ["train", folder / "images", folder / "masks", "-o", folder / "m.segkit", *SMALL]
    code, _, err = segkit(*line, "--pair", "*=drawn *")
    assert code == 2
    assert "2 images without mask of the same name (0, 1)" in err
    code, _, err = segkit(*line, "--pair", "*=drawn * v2")
    assert code == 0, err
    assert load(folder / "m.segkit").settings_["data"]["pair"] == "*=drawn * v2"
    code, _, err = segkit(*line[:3], "-o", folder / "n.segkit", "--pair", "drawn")
    assert code == 2
    assert "give what images and their masks are called, IMAGE=MASK" in err
