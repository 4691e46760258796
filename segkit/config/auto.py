"""The banks that ``--bank auto`` compares: networks whose weights are at hand, and the default bank."""

from __future__ import annotations

from typing import Any

from segkit.config.read import read_options, shipped

# The bank of a training without options.
DEFAULT_BANK: dict[str, Any] = {"name": "stacked"}


def banks_at_hand(n_image_channels: int) -> list[dict[str, Any]]:
    """List banks to compare, best guess first; a single training image takes the first."""
    if n_image_channels not in (1, 3):
        return [DEFAULT_BANK]
    networks = [bank for bank in _banks_of_networks() if all(map(_is_at_hand, networks_of(bank)))]
    return [*networks[:1], DEFAULT_BANK]


def networks_of(bank: dict[str, Any]) -> list[str]:
    """Name the networks of a stacked bank, each once."""
    return list(dict.fromkeys(part["name"] for part in bank["banks"] if "weights" in part))


def _banks_of_networks() -> list[dict[str, Any]]:
    """List banks of networks from ``two-networks``, best first: both networks, and SqueezeNet alone, which is small."""
    both = read_options(shipped("two-networks"))["bank"][0]
    squeezenet = [part for part in both["banks"] if part["name"] != "vgg19"]
    return [both, both | {"banks": squeezenet}]


def _is_at_hand(network: str) -> bool:
    # torch and torchvision take a second to import
    from segkit.features.weights import imagenet_address, is_cached

    return is_cached(imagenet_address(network))
