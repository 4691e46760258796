"""List the packages that a plain install brings, each with its licence as SPDX names it.

    python .ci/licences.py            print the page, of the environment it runs in
    python .ci/licences.py --check F  end with status 1 if a package or licence is not as the page F says

Run it where segkit alone is installed, without extras.
"""

import argparse
import re
import sys
from importlib.metadata import distributions
from pathlib import Path

# Licences of packages whose metadata name none in SPDX, read in the files that they ship.
KNOWN = {"torchvision": "BSD-3-Clause"}
OTHERS = {"pip", "segkit-bio", "setuptools", "wheel"}
NVIDIA, PROPRIETARY = "cuda-toolkit and nvidia-\\*", "LicenseRef-NVIDIA-Proprietary"
HEADER = """# Licences

segkit is under the BSD 3-Clause licence. A plain install (`pip install .`) brings these packages. None of their code is
part of segkit. Licences are SPDX expressions. The list is of Linux; other systems bring fewer packages. NVIDIA's libraries
come with the torch of Linux and are not needed: [Smaller torch](install.md#smaller-torch).

No weights of networks are part of segkit. `--config tuned` needs albumentations (MIT, in the extra `tuned`), and downloads
torchvision's MobileNetV2 (BSD-3-Clause), trained on the photographs of ImageNet.

| package | licence |
|---|---|
"""
SPDX = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "PSF-2.0"}
CLASSIFIERS = {
    "OSI Approved :: Apache Software License": "Apache-2.0",
    "OSI Approved :: BSD License": "BSD-3-Clause",
    "OSI Approved :: MIT License": "MIT",
    "OSI Approved :: ISC License (ISCL)": "ISC",
    "OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "OSI Approved :: Python Software Foundation License": "PSF-2.0",
}


def packages() -> dict[str, str]:
    """Give the licence of every package here, except segkit and the tools that install."""
    found = {re.sub(r"[-_.]+", "-", package.name).lower(): package.metadata for package in distributions()}
    own = {key: licence_of(key, found[key]) for key in sorted(found.keys() - OTHERS)}
    return {NVIDIA if licence == PROPRIETARY else key: licence for key, licence in own.items()}


def licence_of(key: str, metadata) -> str:
    """Give the licence of a package in SPDX."""
    if key in KNOWN:
        return KNOWN[key]
    if expression := metadata.get("License-Expression"):
        return expression
    if (text := metadata.get("License") or "") in SPDX:
        return text
    prefix = "License :: "
    classified = [
        text.removeprefix(prefix) for text in metadata.get_all("Classifier") or () if text.startswith(prefix)
    ]
    names = [CLASSIFIERS[text] for text in classified if text in CLASSIFIERS]
    if names:
        return " OR ".join(names) if len(names) > 1 else names[0]
    if key.startswith(("nvidia-", "cuda-")):
        return PROPRIETARY
    raise SystemExit(
        f"{key}: no licence that SPDX knows ({metadata.get('License')!r}, {classified}): add it to KNOWN"
    )


def main() -> None:
    """Print the page, or check it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    rows = {f"| {name} | {licence} |" for name, licence in packages().items()}
    if arguments.check is None:
        print(HEADER + "\n".join(sorted(rows)))
        return
    told = set(arguments.check.read_text(encoding="utf-8").splitlines())
    if new := sorted(rows - told):
        print(
            f"{arguments.check} lacks {'; '.join(new)}: look at them, then write the page anew",
            file=sys.stderr,
        )
        raise SystemExit(1)


if __name__ == "__main__":
    main()
