"""Print a pip constraint for each dependency: the oldest version that pyproject.toml allows.

Tools of the tests stay free: users do not install them.
"""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
for requirement in project["dependencies"] + extras["baselines"] + extras["objects"] + extras["annotate"]:
    found = re.match(r"([\w.-]+)>=([\w.]+)", requirement)
    if found is None:
        raise SystemExit(f"{requirement}: name>=version needed, so that the oldest version is known")
    print("==".join(found.groups()))
