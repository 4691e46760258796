"""Feature maps come back as they were, the least recently used go, and damage costs time only."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from segkit.errors import ConfigError
from segkit.features import ConvNetBank, MultiscaleBank, OrbitBank, ScatteringBank, StackedBank
from segkit.features.base import FeatureMaps
from segkit.live import FeatureCache, cache
from segkit.live.cache import content_key

IMAGE = np.random.default_rng(0).random((24, 20, 1), dtype=np.float32)


def maps_of(seed=0, n=1000):
    values = np.random.default_rng(seed).random((2, n // 2, 1), dtype=np.float32)
    return [FeatureMaps(values, np.array([0, 1]))]


def same(one, other):
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine.values, theirs.values)
        np.testing.assert_array_equal(mine.indices, theirs.indices)
        assert (mine.stride, mine.offset) == (theirs.stride, theirs.offset)
    return True


def test_maps_of_a_bank_come_back(tmp_path):
    bank = StackedBank([ScatteringBank(J=2, L=2), MultiscaleBank(sigma_max=2)])
    maps = bank.maps(IMAGE)
    maps.append(FeatureMaps(maps[0].values[:1], np.array([999]), 4.0, (1.5, 0.5)))
    store = FeatureCache(tmp_path / "c")
    assert store.get("k") is None
    kept = store.put("k", maps)
    assert same(kept, maps)
    assert all(isinstance(stack.values, np.memmap) for stack in kept)
    assert same(FeatureCache(tmp_path / "c").get("k"), maps)
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["k.npy"]
    rows, cols = np.array([0.5, 3]), np.array([2, 7.25])
    np.testing.assert_array_equal(kept[0].sample(rows, cols), maps[0].sample(rows, cols))


def test_maps_without_channels_and_of_other_memory_order(tmp_path):
    values = np.random.default_rng(0).random((4, 3, 2), dtype=np.float32).transpose(2, 0, 1)
    maps = [FeatureMaps(values, np.arange(2)), FeatureMaps(np.zeros((0, 3, 3), np.float32), np.arange(0))]
    assert same(FeatureCache(tmp_path).put("k", maps), maps)


def test_the_least_recently_used_goes_first_also_after_a_restart(tmp_path):
    store = FeatureCache(tmp_path, limit=10_000)
    for place, key in enumerate("ab"):
        store.put(key, maps_of())
        os.utime(tmp_path / f"{key}.npy", ns=(place, place))
    held = store.get("a")  # used now
    store = FeatureCache(tmp_path, limit=10_000)
    store.put("c", maps_of())
    assert store.get("b") is None
    assert store.get("a") is not None
    store.put("d", maps_of())
    store.put("e", maps_of())
    assert store.get("a") is None
    assert same(held, maps_of())  # still valid in the hands of who got it


def test_entries_that_together_hold_exactly_the_limit_stay(tmp_path):
    limit = 30_000
    store = FeatureCache(tmp_path, limit=limit)
    for place, key in enumerate("ab"):
        store.put(key, maps_of())
        os.utime(tmp_path / f"{key}.npy", ns=(place, place))
    kept = sum((tmp_path / f"{key}.npy").stat().st_size for key in "ab")
    store.put("c", maps_of(n=(limit - kept) // 4))  # 4 bytes a value
    assert all(store.get(key) is not None for key in "abc")
    store.put("c", maps_of(n=(limit - kept) // 4 + 2))
    assert [key for key in "abc" if store.get(key) is None] == ["a"]


def test_maps_above_the_limit_are_given_back(tmp_path):
    maps = maps_of()
    assert FeatureCache(tmp_path, limit=100).put("k", maps) is maps
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: entry.write_bytes(entry.read_bytes()[:-100]),
        lambda entry: entry.write_bytes(entry.read_bytes()[:300]),
        lambda entry: entry.write_bytes(b""),
        lambda entry: entry.write_bytes(entry.read_bytes().replace(b'{"format"', b'["format"')),
        lambda entry: entry.write_bytes(entry.read_bytes().replace(b'"format": 2', b'"format": 0')),
        lambda entry: np.save(entry, np.array([{}]), allow_pickle=True),
        lambda entry: entry.write_bytes(entry.read_bytes().replace(b"'<f4'", b"'<i4'")),
        lambda entry: entry.write_bytes(entry.read_bytes().replace(b"[0, 1]", b"[0   ]")),
    ],
)
def test_damaged_entries_are_removed_and_written_again(tmp_path, damage):
    store, maps = FeatureCache(tmp_path), maps_of()
    store.put("k", maps)
    damage(tmp_path / "k.npy")
    assert store.get("k") is None
    assert not list(tmp_path.iterdir())
    assert same(store.put("k", maps), maps)


def test_an_entry_that_another_program_wrote_first_stays(tmp_path):
    one, other = FeatureCache(tmp_path), FeatureCache(tmp_path)
    held = one.put("k", maps_of())
    assert same(other.put("k", maps_of()), held)
    assert [path.name for path in tmp_path.iterdir()] == ["k.npy"]


@pytest.mark.slow(short=True)
def test_two_programs_fill_one_cache(tmp_path):
    script = """
import sys
import numpy as np
from segkit.features.base import FeatureMaps
from segkit.live import FeatureCache

store = FeatureCache(sys.argv[1], limit=20_000)
for turn in range(60):
    value = turn % 7
    maps = [FeatureMaps(np.full((1, 40, 40), value, np.float32), np.arange(1))]
    kept = store.get(f"k{value}") or store.put(f"k{value}", maps)
    assert (kept[0].values == value).all()
"""
    command = [sys.executable, "-W", "error", "-c", script, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    programs = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [program.wait() for program in programs] == [0, 0]
    # two and a new one, and both may add one at the same time
    assert 1 <= len(list(tmp_path.rglob("*.npy"))) <= 4


def test_a_full_disk_gives_the_maps_back_with_one_warning(tmp_path, monkeypatch):
    def full(folder, maps):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache, "_write", full)
    store, maps = FeatureCache(tmp_path), maps_of()
    with pytest.warns(UserWarning, match="cannot be kept") as warned:
        kept = [store.put("k", maps) for _ in range(2)]
    assert all(one is maps for one in kept)
    assert [str(one.message) for one in warned] == [
        f"{tmp_path}: feature maps cannot be kept (No space left on device), so images are filtered anew each time: "
        "free space there, or name another folder (environment variable SEGKIT_CACHE)"
    ]
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_removed_are_skipped(tmp_path, monkeypatch):
    store = FeatureCache(tmp_path, limit=5_000)
    store.put("a", maps_of())
    monkeypatch.setattr(cache, "_remove", lambda folder: False)
    assert same(store.put("b", maps_of()), maps_of())
    assert store.get("a") is not None


def test_parts_of_a_killed_program_are_removed_a_day_later(tmp_path):
    old, new = tmp_path / ".k.1-0.part.npy", tmp_path / ".k.2-0.part.npy"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    FeatureCache(tmp_path).put("k", maps_of())
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, "k.npy"]


def test_the_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("SEGKIT_CACHE", str(tmp_path / "mine"))
    assert FeatureCache().folder == tmp_path / "mine"
    monkeypatch.delenv("SEGKIT_CACHE")
    assert FeatureCache().folder.parts[-2:] == ("segkit", "features")


def test_bad_input(tmp_path):
    with pytest.raises(ConfigError, match=r"^limit 0: give a number of bytes, 1 or more$"):
        FeatureCache(tmp_path, limit=0)
    for key in ("", "../a", "a/b", "."):
        with pytest.raises(ConfigError, match=r"give letters and digits, as content_key does$"):
            FeatureCache(tmp_path).get(key)


def test_keys_depend_on_pixels_bank_and_tile_only():
    key = content_key(IMAGE, ScatteringBank(J=2, L=2), "0:0")
    assert key == content_key(IMAGE[:, :, 0].astype(np.float64), ScatteringBank(J=2, L=2), "0:0")
    changed = IMAGE.copy()
    changed[3, 3] += 1e-6
    others = [
        content_key(changed, ScatteringBank(J=2, L=2), "0:0"),
        content_key(IMAGE.reshape(20, 24, 1), ScatteringBank(J=2, L=2), "0:0"),
        content_key(IMAGE, ScatteringBank(J=2, L=4), "0:0"),
        content_key(IMAGE, ScatteringBank(J=2, L=2), "0:1"),
        content_key(IMAGE, StackedBank([ScatteringBank(J=2, L=2)]), "0:0"),
    ]
    assert len({key, *others}) == 6


def test_keys_depend_on_what_a_bank_learnt():
    banks = [
        OrbitBank(patch_sizes=(3,), n_templates=4, templates="patches", random_state=0).fit([image])
        for image in (IMAGE, IMAGE, 1 - IMAGE**2)
    ]
    keys = [content_key(IMAGE, bank, "") for bank in banks]
    assert keys[0] == keys[1] != keys[2]


def test_keys_do_not_depend_on_the_order_of_weights():
    bank = OrbitBank(patch_sizes=(3, 5), n_templates=4, templates="patches", random_state=0).fit([IMAGE])
    weights = bank.weights_used(np.arange(bank.n_channels(1)), 1)
    other = clone(bank)
    other.use_weights(dict(reversed(weights.items())))
    assert content_key(IMAGE, other, "") == content_key(IMAGE, bank, "")


def test_of_a_file_of_weights_the_content_counts(tmp_path):
    pytest.importorskip("torch")
    source = ConvNetBank("squeezenet1_1", weights="random", layers=["conv1"])
    for name, factor in (("a", 1), ("b", 2)):
        weights = source.weights_used(np.arange(source.n_channels(1)), 1)
        np.savez(tmp_path / f"{name}.npz", **{key: factor * weight for key, weight in weights.items()})
    shutil.copy(tmp_path / "a.npz", tmp_path / "copy.npz")
    files = [str(tmp_path / f"{name}.npz") for name in ("a", "copy", "b")]
    banks = [ConvNetBank("squeezenet1_1", weights=file, layers=["conv1"]) for file in files]
    first, copy, other = (content_key(IMAGE, bank, "") for bank in banks)
    assert first == copy != other
