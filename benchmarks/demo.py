"""Score and picture of ``segkit demo`` for the README.

python -m benchmarks.demo
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from PIL import Image

from benchmarks.common import digest_sources, write_result
from segkit.benchmark.machine import machine
from segkit.cli.demo import run_demo

RESULT = Path(__file__).parent / "results" / "demo.json"
PICTURE = Path(__file__).parents[1] / "docs" / "demo.jpg"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        result = run_demo(Path(temporary) / "demo")
        arguments.picture.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(result.picture) as picture:
            picture.convert("RGB").save(arguments.picture, quality=88)
    made = {"seconds": result.summary.seconds, "machine": machine(), "sources": digest_sources()}
    write_result(arguments.out, result.scores | made)


if __name__ == "__main__":
    main()
