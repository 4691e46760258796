"""Print a pip constraint for each dependency: the oldest version that pyproject.toml allows.

Tools of the tests stay free: users do not install them.
"""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
optional = [
    one
    for name in ("tuned", "baselines", "objects", "annotate", "large", "foundation", "scale")
    for one in extras[name]
    if not one.startswith(project["name"])  # an extra within
]
oldest: dict[str, str] = {}
for requirement in project["dependencies"] + optional:
    found = re.match(r"([\w.-]+)>=([\w.]+)", requirement)
    if found is None:
        raise SystemExit(f"{requirement}: name>=version needed, so that the oldest version is known")
    name, version = found.groups()
    # an extra may ask for a later version than segkit itself
    oldest[name] = max(
        oldest.get(name, "0"), version, key=lambda text: [int(part) for part in text.split(".")]
    )
for name, version in oldest.items():
    print(f"{name}=={version}")
