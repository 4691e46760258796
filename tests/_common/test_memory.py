"""Limits of memory: read, held, and told."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from segkit._common import memory as _memory
from segkit._common.memory import (
    bytes_free,
    bytes_left,
    bytes_used,
    limit_of_one,
    memory_limit,
    read_size,
    require_bytes,
)
from segkit.errors import ConfigError, InputError
from segkit.features import MultiscaleBank
from segkit.features.tiles import whole


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("500MB", 5 * 10**8), ("1.5g", 15 * 10**8), ("70000 KiB", 70000 * 2**10), (2**30, 2**30)],
)
def test_sizes_are_read(text, n_bytes):
    assert read_size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "-1GB", "2 GiB of it", "12", 63 * 2**20])
def test_no_sizes_are_refused(text):
    with pytest.raises(ConfigError) as caught:
        read_size(text)
    assert str(caught.value) == (
        f"memory limit {text!r}: give a size of 64 MiB or more, such as 2GiB or 500MB"
    )


def test_a_limit_holds_within_its_block():
    outside = bytes_left()
    with memory_limit("900GiB"):
        assert abs(bytes_left() - (900 * 2**30 - bytes_used())) < 2**24
        with memory_limit(None):
            assert bytes_left() > 800 * 2**30
        with memory_limit("100MiB"):
            assert bytes_left() < 100 * 2**20
    assert abs(bytes_left() - outside) < 2**30


def test_a_limit_is_shared():
    assert limit_of_one(4) is None
    with memory_limit("1GiB"):
        assert [limit_of_one(n) for n in (1, 4, 16)] == [2**30, 2**28, 2**26]
        with pytest.raises(
            ConfigError, match=r"^memory limit 1.0 GiB: 60 MiB for each of 17 processes, at least 64 MiB"
        ):
            limit_of_one(17)


def test_without_a_limit_half_of_what_is_free_is_used(monkeypatch):
    monkeypatch.setattr(_memory, "bytes_free", lambda: 5000)
    assert bytes_left() == 2500
    with pytest.raises(InputError, match="half of the free memory and what is used already are"):
        require_bytes(2501, what="work")
    require_bytes(2500, what="work")


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_control_groups_count(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4_000_000))
    monkeypatch.setattr(_memory, "_CGROUPS", tmp_path)
    assert bytes_free() == 4_000_000
    write(tmp_path, memoryDOTmax="max\n", memoryDOTcurrent="700000\n", memoryDOTstat="inactive_file 100000\n")
    assert bytes_free() == 4_000_000
    write(tmp_path, memoryDOTmax="1000000\n")
    assert bytes_free() == 1_000_000 - (700_000 - 100_000)
    write(tmp_path, memory__memoryDOTlimit_in_bytes="900000", memory__memoryDOTusage_in_bytes="950000")
    assert bytes_free() == 0


def test_tiles_follow_from_the_limit(monkeypatch):
    bank, shape = MultiscaleBank(sigma_max=2), (3000, 2000, 3)
    largest = {}
    for left in (10**10, 2 * 10**8, 10**7, -5):
        monkeypatch.setattr("segkit.features.tiles.bytes_left", lambda left=left: left)
        pixels = max(tile.shape[0] * tile.shape[1] for tile in bank.tiles(shape))
        largest[left] = pixels * bank.bytes_per_pixel(3)
    assert 10**8 < largest[2 * 10**8] <= 2 * 10**8 < largest[10**10]
    assert largest[10**7] <= 10**7
    assert largest[-5] == largest[10**7] or largest[-5] < 10**7
    monkeypatch.setattr("segkit.features.tiles.bytes_left", lambda: 10**7)
    assert len(bank.tiles((500, 500, 3))) > 1
    assert bank.tiles((100, 100, 3)) == [whole((100, 100))]
