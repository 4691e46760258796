"""Weights of networks: from torchvision's server, the hub of Hugging Face, an address, or a file.

Every source yields a state dictionary with the parameter names of torchvision or timm. No file can execute code
when it is read, and a download must match the hash in its name, or the one that the hub names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from zipfile import BadZipFile

import numpy as np

from segkit.errors import ConfigError, WeightsError
from segkit.features.backbone import configuration

if TYPE_CHECKING:
    import torch

# Names of weights in a repository of the hub, and of a file in its cache.
_FILES = ("model.safetensors", "pytorch_model.bin")
_FORMATS = (".npz", ".safetensors", ".pth", ".pt", ".bin")
_ADDRESSES = ("http://", "https://")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WITHOUT_WEIGHTS = "take the default bank, which needs none"


def load_weights(network: str, source: str | Path) -> dict[str, torch.Tensor]:
    """Load a state dictionary, of all layers or the first ones: "imagenet", an address, or the path of a file."""
    address = str(source)
    if address == "imagenet":
        return download_weights(imagenet_address(network))
    if address.startswith(_ADDRESSES):
        return download_weights(address)
    return read_weights(Path(source))


def imagenet_address(network: str) -> str:
    """Look up the address of torchvision's ImageNet weights of a network."""
    from torchvision.models import get_model_weights

    check_network(network)
    weights = get_model_weights(network)
    # The first version: the second one of some networks was trained by another recipe.
    return str(weights["IMAGENET1K_V1"].url)


def check_network(network: str) -> None:
    """Refuse the name of a network unless torchvision has it."""
    from torchvision.models import list_models

    known = list_models(module=None)
    if network not in known:
        # With a cutoff of 0 there is always a nearest name.
        [near] = get_close_matches(network, known, n=1, cutoff=0)
        raise ConfigError(
            f"network {network!r} is not one of torchvision's: the nearest is {near}; there are vgg16, vgg19, "
            f"squeezenet1_0, resnet18 and more"
        )


def cached_file(address: str) -> Path:
    """Return the place of downloaded weights in torch's cache."""
    import torch

    return Path(torch.hub.get_dir()) / "checkpoints" / address.rsplit("/", 1)[-1]


def is_cached(address: str) -> bool:
    """Return whether the weights at an address were downloaded already."""
    return cached_file(address).is_file()


def download_weights(address: str) -> dict[str, torch.Tensor]:
    """Download a state dictionary once into torch's cache, and check the hash in its name, also of what is there."""
    import torch

    # torch checks a hash only if the name holds one, and only when it downloads
    found = re.search(r"-([0-9a-f]{8,})\.", address.rsplit("/", 1)[-1])
    if found is None:
        raise WeightsError(
            f"weights {address}: the file name carries no sha256 to check the download; "
            f"name it NAME-<first 8 or more digits of its sha256>.pth, or download it and give its path"
        )
    cached = cached_file(address)
    if cached.is_file():
        _check_digest(cached, found[1])
    try:
        state: dict[str, torch.Tensor] = torch.hub.load_state_dict_from_url(
            address, progress=False, check_hash=True, weights_only=True, map_location="cpu"
        )
    except (URLError, OSError) as error:
        raise WeightsError(
            f"weights {address} cannot be downloaded ({getattr(error, 'reason', error)}): download them on another machine "
            f"into {cached.parent}, or give their file (weights=FILE; for --config tuned "
            f"--set bank.0.banks.0.weights=FILE), or {_WITHOUT_WEIGHTS}"
        ) from error
    except Exception as error:  # torch raises RuntimeError on a bad hash, pickle errors on a bad file
        cause = str(error).splitlines()[0]
        raise WeightsError(
            f"weights {address} are damaged ({cause}): delete {cached} and try again"
        ) from error
    return state


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Read a state dictionary from a file, which cannot execute code."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise WeightsError(
            f"weights {path}: no such file; give weights=imagenet, a file, or {_WITHOUT_WEIGHTS}"
        )
    if path.suffix not in _FORMATS:
        raise ConfigError(
            f"weights {path}: unknown format {path.suffix!r}; needed .npz, .safetensors, .pth or .pt"
        )
    state: dict[str, Any]
    try:
        match path.suffix:
            case ".npz":
                with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                    state = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
            case ".safetensors":
                state = load_file(path)
            case _:
                state = dict(torch.load(path, map_location="cpu", weights_only=True))
        odd = [
            name
            for name, value in state.items()
            if isinstance(value, torch.Tensor) and not value.isfinite().all()
        ]
    except (ValueError, OSError, SafetensorError, RuntimeError, TypeError, EOFError, BadZipFile) as error:
        raise WeightsError(
            f"weights {path} cannot be read ({str(error).splitlines()[0]}): get the file again"
        ) from error
    except Exception as error:  # an unpickling error is a bare Exception subclass in some versions of torch
        raise WeightsError(
            f"weights {path} hold more than arrays and were not opened: save a state_dict"
        ) from error
    if odd:
        raise WeightsError(f"weights {path}: {odd[0]} holds values that are not finite: get the file again")
    return state


def load_pretrained(network: str) -> dict[str, torch.Tensor]:
    """Load the pre-trained weights of a network of timm."""
    found = configuration(network)
    if found.hf_hub_id:
        return read_weights(_hub_file(network, found))
    if found.url:
        return download_weights(found.url)
    raise WeightsError(
        f"weights of {network}: timm knows none: give a file (bank.weights=FILE), or a tag of "
        f"timm.list_pretrained('{network.partition('.')[0]}*')"
    )


def origin_of(network: str) -> dict[str, str | None]:
    """Report where the pre-trained weights of a model come from, and their licence."""
    found = configuration(network)
    source = f"https://huggingface.co/{found.hf_hub_id}" if found.hf_hub_id else found.url
    name = ".".join(filter(None, [found.architecture, found.tag]))
    return {"model": name, "source": source, "licence": found.license}


def missing_download(options: Mapping[str, Any]) -> str | None:
    """Name the address, or the network of timm, whose weights a bank of these options would download; None if none."""
    source = str(options.get("weights"))
    if source.startswith(_ADDRESSES):
        return None if is_cached(source) else source
    if source != "pretrained":
        return None
    network = str(options["network"])
    found = configuration(network)
    is_here = _cached_hub_file(found) is not None if found.hf_hub_id else is_cached(str(found.url))
    return None if is_here else network


def _hub_file(network: str, found: Any) -> Path:
    """Find the weights in the cache of the hub, or download them there."""
    from huggingface_hub import errors, hf_hub_download

    if (cached := _cached_hub_file(found)) is not None:
        return _checked(cached)
    repository, names, revision = _place_on_hub(found)
    page, cause = f"https://huggingface.co/{repository}", ""
    for name in names:
        try:
            # without a token: the hub need not know who asks
            return _checked(Path(hf_hub_download(repository, name, revision=revision, token=False)))
        except (
            errors.RepositoryNotFoundError
        ) as error:  # also where the hub asks for a licence to be accepted
            raise WeightsError(
                f"weights of {network} are gated or not at {page}: accept their licence there, download {name}, and give "
                "the file (bank.weights=FILE)"
            ) from error
        except (errors.EntryNotFoundError, errors.HfHubHTTPError, OSError) as error:
            cause = (str(error).splitlines() or [type(error).__name__])[0]
            if not isinstance(error, errors.EntryNotFoundError) or isinstance(
                error, errors.LocalEntryNotFoundError
            ):
                break
    raise WeightsError(
        f"weights of {network} are not in the cache of the hub and cannot be downloaded ({cause}): download {names[0]} from "
        f"{page} on another machine and give the file (bank.weights=FILE)"
    )


def _cached_hub_file(found: Any) -> Path | None:
    """Find the weights in the cache of the hub."""
    from huggingface_hub import try_to_load_from_cache

    repository, names, revision = _place_on_hub(found)
    cached = (try_to_load_from_cache(repository, name, revision=revision) for name in names)
    return next((Path(path) for path in cached if isinstance(path, str)), None)


def _place_on_hub(found: Any) -> tuple[str, list[str], str | None]:
    """Name the repository of weights, the files that may hold them, and the revision."""
    repository, _, revision = found.hf_hub_id.partition("@")
    return repository, [found.hf_hub_filename] if found.hf_hub_filename else list(_FILES), revision or None


def _checked(path: Path) -> Path:
    """Compare a file of the cache with its sha256, which is its name behind the link."""
    stored = path.resolve()
    if _SHA256.fullmatch(stored.name):
        _check_digest(stored, stored.name)
    return path


def _check_digest(path: Path, digest: str) -> None:
    """Refuse a file whose sha256 begins otherwise."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(digest):
        raise WeightsError(
            f"weights {path} are damaged or were replaced (sha256 {found[:8]}..., expected {digest[:8]}...): delete that "
            "file and try again"
        )
