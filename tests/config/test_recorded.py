"""Trainings repeated from model files: what a file names is not downloaded."""

import pytest

from segkit.config.recorded import RecordedTraining
from segkit.config.schema import Config
from segkit.errors import ConfigError

ADDRESS = "https://example.org/vgg16-0123abcd.pth"


def recorded(path, bank):
    return RecordedTraining(path, Config.from_options({"bank": bank}).model_dump(mode="json"), None, {})


@pytest.mark.parametrize("depth", [0, 1])
def test_an_address_in_a_model_file_is_not_asked_unless_the_user_names_it(tmp_path, depth):
    bank, key = {"name": "vgg16", "weights": ADDRESS}, "bank"
    for _ in range(depth):
        bank, key = {"banks": [{"name": "multiscale"}, bank]}, f"{key}.banks.1"
    training = recorded(tmp_path / "m.segkit", bank)
    with pytest.raises(ConfigError) as caught:
        training.configure(["seed=3"])
    assert str(caught.value) == (
        f"{tmp_path / 'm.segkit'} names {ADDRESS}, whose weights are not here, and a model file starts no download: give "
        f"their file (--set {key}.weights=FILE), or name it yourself (--set {key}.weights={ADDRESS})"
    )
    for source in ("imagenet", ADDRESS, str(tmp_path / "w.npz")):
        training.configure([f"{key}.weights={source}"])


def test_words_of_segkit_are_no_addresses(tmp_path):
    for source in ("imagenet", str(tmp_path / "w.npz")):
        recorded(tmp_path / "m.segkit", {"name": "vgg16", "weights": source}).configure()
