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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nsvm: {C: 1}\nseed: 2\n", "key seed is given twice, on lines 1 and 3: keep one of them"),
        ("svm:\n  C: 1\n  C: 2\n", "key C is given twice, on lines 2 and 3: keep one of them"),
        ("svm: {C: 1, C: 2}", "key C is given twice, on line 1: keep one of them"),
        ("data: {labels: {0: a, 0x0: b}}", "key 0 is given twice, on line 1"),
    ],
)
def test_a_key_given_twice_is_refused(tmp_path, text, message):
    """The last would win."""
    path = tmp_path / "twice.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_options(path)
    assert str(refused.value).startswith(f"configuration {path}: {message}")


def test_a_key_given_twice_in_an_override_is_refused():
    with pytest.raises(ConfigError, match=r"^--set svm={C: 1, C: 2}: key C is given twice, on line 1: "):
        read_options(None, ["svm={C: 1, C: 2}"])


def test_merged_keys_may_be_replaced(tmp_path):
    (tmp_path / "merged.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")
    assert read_options(tmp_path / "merged.yaml")["b"] == {"x": 3, "y": 2}


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "\n".join(
            f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]"
            for old, new in zip("zabcde", "abcdef", strict=True)
        ),
    ],
)
def test_text_that_unfolds_without_end_is_refused(tmp_path, text):
    (tmp_path / "bomb.yaml").write_text(f"z: &z [1]\n{text}\n")
    with pytest.raises(ConfigError, match="more than 100000 values, aliases"):
        read_options(tmp_path / "bomb.yaml")


def test_keys_that_are_lists_are_refused(tmp_path):
    (tmp_path / "odd.yaml").write_text("[a, b]: 1\n")
    with pytest.raises(ConfigError, match="is not YAML"):
        read_options(tmp_path / "odd.yaml")


@pytest.mark.parametrize("number", ["010", "-0_17", "1:30", "1:30.5"])
def test_numbers_that_yaml_reads_as_others_are_refused(number):
    with pytest.raises(
        ConfigError, match=rf"^--set seed={number}: number {number}, which YAML reads as another: give it"
    ):
        read_options(None, [f"seed={number}"])
    assert (
        read_options(None, [f"seed='{number}'", "a=10", "b=0.5", "c=0x10", "d=0", "e=1_000"])["seed"]
        == number
    )
