"""Description of the machine, for measured numbers, and peak memory."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from segkit.segmentation.model_file import package_versions


def machine(device: str = "cpu") -> dict[str, Any]:
    """Describe this machine: processor, number of cores, versions, and the GPU if it is the device."""
    model = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "cpu": model,
        "n_cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": package_versions(),
    } | ({"gpu": _gpu(device)} if device.startswith("cuda") else {})


def peak_memory_mib() -> float | None:
    """Read the peak memory of this process in MiB; None if the system does not report it."""
    # Prefer /proc to getrusage: on Linux the maximum of getrusage starts at the parent's memory.
    for line in _lines("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**10
    try:
        import resource
    except ImportError:
        return None
    unit = 2**20 if platform.system() == "Darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _gpu(device: str) -> str:
    import torch

    return torch.cuda.get_device_name(device)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
