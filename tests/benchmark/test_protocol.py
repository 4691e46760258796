import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.benchmark import few_shot_split
from segkit.benchmark.protocol import Split, read_groups, read_stem_list
from segkit.errors import InputError

STEMS = [f"{n:02d}" for n in range(20)]


@settings(max_examples=30)
@given(n=st.integers(3, 40), seed=st.integers(0, 1000))
def test_split_is_that_of_the_protocol(n, seed):
    """Stems sorted, permuted; the last third, rounded up, is tested on, the first of the rest trained on."""
    stems = [f"{i:02d}" for i in range(n)]
    permuted = [stems[i] for i in np.random.default_rng(seed).permutation(n)]
    n_test = math.ceil(n / 3)
    found = few_shot_split(stems[::-1], 2, seed) if n - n_test >= 2 else None
    if found is not None:
        assert found == Split(tuple(permuted[:2]), tuple(permuted[-n_test:]))


def test_larger_training_sets_contain_smaller_ones_and_test_images_stay():
    small, large = (few_shot_split(STEMS, n, 3) for n in (2, 9))
    assert large.train[:2] == small.train
    assert large.test == small.test
    assert not set(large.train) & set(large.test)


def test_groups_are_never_split():
    groups = {stem: f"patient {int(stem) // 4}" for stem in STEMS}
    for seed in range(10):
        found = few_shot_split(STEMS, 6, seed, groups=groups)
        assert not {groups[stem] for stem in found.train} & {groups[stem] for stem in found.test}
        assert len(found.test) == 8  # two of five patients


def test_a_given_test_set_is_kept_with_its_groups():
    groups = {stem: f"patient {int(stem) // 4}" for stem in STEMS}
    found = few_shot_split(STEMS, 16, 0, groups=groups, test=["00"])
    assert found.test == ("00",)
    assert not set(found.train) & {"00", "01", "02", "03"}


def test_a_split_needs_images_that_are_there():
    for arguments, message in (
        ({"n_train": 14}, "14 training images asked for, but of 20 only 13 are left beside the test"),
        ({"n_train": 0}, "0 training images asked for: give 1 or more"),
        ({"n_train": 1, "stems": ["00"]}, "1 training image asked for, but of 1 only 0 are left"),
        ({"n_train": -1}, "-1 training images asked for"),
        ({"test": ["00", "nowhere"]}, "image nowhere is a test image without annotation, or has no group"),
        ({"groups": {"00": "a"}}, "image 01 is a test image without annotation, or has no group"),
    ):
        with pytest.raises(InputError, match=message):
            few_shot_split(**{"stems": STEMS, "n_train": 2, "seed": 0} | arguments)


def test_groups_are_read_with_or_without_a_header(tmp_path):
    path = tmp_path / "groups.csv"
    path.write_text('stem,group\na,1\n"b, c",2\n', encoding="utf-8")
    assert read_groups(path, ["a", "b, c"]) == {"a": "1", "b, c": "2"}


def test_groups_of_pages_are_read_by_file_or_by_page(tmp_path):
    path = tmp_path / "groups.csv"
    path.write_text("a,1\na#2,2\nb,1\nb,1\n")
    groups = read_groups(path, ["a#1", "a#2", "b"], files=["a", "a", "b"])
    assert groups == {"a#1": "1", "a#2": "2", "b": "1"}


def test_bad_group_files(tmp_path):
    path = tmp_path / "groups.csv"
    for text, message in (
        ("a,1\n", "lacks b: give a line"),
        ("a\n", "line 1 has 1 column:"),
        ("a,1\nb,2\na,3\n", "line 3 puts a into 3, an earlier one into 1: keep one"),
        ("a,1\nb, \n", "line 2 gives b no group"),
        ("\xe9,1\n", "cannot be read"),
    ):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(InputError, match=message):
            read_groups(path, ["a", "b"])
    path.unlink()
    with pytest.raises(InputError, match=r"groups .*groups.csv: no such file: check its name$"):
        read_groups(path, ["a", "b"])


def test_stem_lists(tmp_path):
    path = tmp_path / "test.txt"
    path.write_text("b\n\na\nb\n")
    assert read_stem_list(path, ["a", "b", "c"]) == ["a", "b"]
    for text, message in (("", "is empty"), ("z\n", "names z, which no image has")):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_stem_list(path, ["a", "b", "c"])
    path.write_bytes(b"\xe9")
    with pytest.raises(InputError, match="cannot be read"):
        read_stem_list(path, ["a"])
    with pytest.raises(InputError, match=r"list .*none.txt: no such file: check its name$"):
        read_stem_list(tmp_path / "none.txt", ["a"])
