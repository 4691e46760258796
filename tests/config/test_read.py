from pathlib import Path

import pytest

from segkit.config.read import read_options, shipped
from segkit.errors import ConfigError


@pytest.mark.parametrize("name", ["vgg16", "vgg16.yaml", "configs/vgg16.yaml"])
def test_configurations_that_come_with_segkit_go_by_their_names(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert read_options(Path(name)) == read_options(shipped("vgg16"))
    assert read_options(Path(name))["bank"]["name"] == "vgg16"
    (tmp_path / "vgg16").write_text("bank: {name: multiscale}")
    assert read_options(Path("vgg16")) == {"bank": {"name": "multiscale"}}
    with pytest.raises(
        ConfigError, match=r"mine/vgg16\.yaml: no such file: check its name"
    ):  # somebody's own, misspelt
        read_options(Path("mine/vgg16.yaml"))


def test_unreadable_files(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigError) as error:
            read_options(path)
        assert str(error.value).startswith(
            f"configuration {path}: no such file: check its name, or give that of one that comes with segkit: benchmark, "
        )
    (tmp_path / "latin.yaml").write_bytes(b"\xe9")
    with pytest.raises(
        ConfigError, match=r"cannot be read .* that comes with segkit: .*scattering, .*two-networks"
    ):
        read_options(tmp_path / "latin.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ConfigError, match="holds a list"):
        read_options(tmp_path / "list.yaml")
    (tmp_path / "empty.yaml").write_text("")
    assert read_options(tmp_path / "empty.yaml") == {}


def test_overrides_win_over_the_file_and_the_file_over_the_base(tmp_path):
    (tmp_path / "mine.yaml").write_text("svm: {C: 1, loss: hinge}")
    base = {"svm": {"C": 9}, "seed": 3}
    found = read_options(tmp_path / "mine.yaml", ["svm.C=2", "kernel.gammas=[1, 2]"], base=base)
    assert found == {"svm": {"C": 2, "loss": "hinge"}, "seed": 3, "kernel": {"gammas": [1, 2]}}
    assert base == {"svm": {"C": 9}, "seed": 3}
