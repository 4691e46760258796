import subprocess
import sys

import pytest

from segkit.benchmark.machine import machine, peak_memory_mib

TELL = "from segkit.benchmark.machine import peak_memory_mib; print(peak_memory_mib())"
PARENT = f"""
import subprocess, sys
held = b"1" * (500 * 2**20)
print(subprocess.run([sys.executable, "-c", {TELL!r}], capture_output=True, text=True, check=True).stdout)
"""


@pytest.mark.slow(short=True)
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system counts the parent's memory too")
def test_memory_of_the_parent_is_not_ours():
    told = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, check=True).stdout
    assert 10 < float(told) < 500


@pytest.mark.skipif(sys.platform == "win32", reason="the system does not tell")
def test_memory_where_there_is_no_proc(monkeypatch):
    monkeypatch.setattr("segkit.benchmark.machine._lines", lambda _: [])
    assert peak_memory_mib() > 10


def test_the_gpu_is_named_if_it_was_used(monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: f"name of {device}")
    assert machine("cuda:1")["gpu"] == "name of cuda:1"
    assert "gpu" not in machine("cpu")
