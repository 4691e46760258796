"""What a measured number depends on besides the code."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from segkit.segmentation.model_file import package_versions


def machine(device: str = "cpu") -> dict[str, Any]:
    """Processor, cores and versions of the machine that this runs on, and its GPU if that is the device."""
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
    """Most memory this process ever held, in MiB; None where the system does not tell."""
    # not getrusage if it can be helped: on Linux its maximum starts at that of the parent process
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
