"""Pre-trained weights of timm's models: from the hub of Hugging Face, or the address that timm names.

A download is kept in the cache of the hub and found there without network. Its sha256 is compared with the one that the
hub names. No file can execute code when it is read.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segkit.errors import WeightsError
from segkit.features.backbone import configuration
from segkit.features.weights import download_weights, read_weights

if TYPE_CHECKING:
    import torch

_FILES = ("model.safetensors", "pytorch_model.bin")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def load_pretrained(model: str) -> dict[str, torch.Tensor]:
    """Load the pre-trained weights of a model of timm."""
    found = configuration(model)
    if found.hf_hub_id:
        return read_weights(_hub_file(model, found))
    if found.url:
        return download_weights(found.url)
    raise WeightsError(
        f"weights of {model}: timm knows none: give a file (bank.weights=FILE), or a tag of "
        f"timm.list_pretrained('{model.partition('.')[0]}*')"
    )


def origin_of(model: str) -> dict[str, str | None]:
    """Report where the pre-trained weights of a model come from, and their licence."""
    found = configuration(model)
    source = f"https://huggingface.co/{found.hf_hub_id}" if found.hf_hub_id else found.url
    return {"model": _with_tag(found), "source": source, "licence": found.license}


def _with_tag(found: Any) -> str:
    return ".".join(filter(None, [found.architecture, found.tag]))


def _hub_file(model: str, found: Any) -> Path:
    """Find the weights in the cache of the hub, or download them there."""
    from huggingface_hub import errors, hf_hub_download

    repository, _, revision = found.hf_hub_id.partition("@")
    names = [found.hf_hub_filename] if found.hf_hub_filename else list(_FILES)
    page = f"https://huggingface.co/{repository}"
    try:
        return _checked(_first(hf_hub_download, repository, names, revision or None))
    except errors.GatedRepoError as error:
        raise WeightsError(
            f"weights of {model} are gated: accept their licence at {page}, run hf auth login, and try again, or give a "
            "file (bank.weights=FILE)"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise WeightsError(
            f"weights of {model} are not at {page}, or not for you: run hf auth login if they are gated, or give a file "
            "(bank.weights=FILE)"
        ) from error
    except errors.EntryNotFoundError as error:
        if not isinstance(error, errors.LocalEntryNotFoundError):
            raise WeightsError(
                f"weights of {model}: {page} holds no {' or '.join(names)}: give a file (bank.weights=FILE)"
            ) from error
        raise _unreachable(model, page, names[0], error) from error
    except (errors.HfHubHTTPError, OSError) as error:
        raise _unreachable(model, page, names[0], error) from error


def _first(download: Any, repository: str, names: list[str], revision: str | None) -> Path:
    """Return the first of some files that the cache or the hub has; the cache is asked first."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    for name in names:
        try:
            return Path(download(repository, name, revision=revision, local_files_only=True))
        except LocalEntryNotFoundError:
            continue
    for name in names[:-1]:
        try:
            return Path(download(repository, name, revision=revision))
        except LocalEntryNotFoundError:
            raise
        except EntryNotFoundError:
            continue
    return Path(download(repository, names[-1], revision=revision))


def _unreachable(model: str, page: str, name: str, error: Exception) -> WeightsError:
    cause = (str(error).splitlines() or [type(error).__name__])[0]
    return WeightsError(
        f"weights of {model} are not in the cache of the hub and cannot be downloaded ({cause}): download {name} from "
        f"{page} on another machine and give the file (bank.weights=FILE)"
    )


def _checked(path: Path) -> Path:
    """Compare a file of the cache with its sha256, which is its name behind the link."""
    stored = path.resolve()
    if _SHA256.fullmatch(stored.name):
        with stored.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != stored.name:
            raise WeightsError(
                f"weights {path} are damaged (their sha256 differs): delete {stored} and try again"
            )
    return path
