"""What tests of images share: small pictures and masks, folders of both, and the text of an error."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from segkit.errors import InputError

NOISE = np.random.default_rng(0).integers(0, 255, (6, 8, 3)).astype(np.uint8)
MASK = np.where(NOISE[:, :, 0] > 120, 255, 0).astype(np.uint8)


def picture(stem):
    """Noise, with a pixel that depends on the name: no two images are the same."""
    image = NOISE.copy()
    image[0, 0, 2] = sum(stem.encode()) % 256
    return image


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


def png(width, height, data=b"\0" * 1000, *, bits=8, colour=0):
    """A PNG file of a declared size, whatever its data."""

    def chunk(name, content):
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def complaint(call, *args, error=InputError, **kwargs):
    """The message, of one line, of an error."""
    with pytest.raises(error) as raised:
        call(*args, **kwargs)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def luminance(colour):
    """Relative luminance as WCAG 2 defines it."""
    values = np.asarray(colour) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(first, second):
    darker, lighter = sorted([luminance(first), luminance(second)])
    return (lighter + 0.05) / (darker + 0.05)


@pytest.fixture
def folders(tmp_path):
    return tmp_path / "images", tmp_path / "masks"


@pytest.fixture
def complete(folders):
    """Three images and their masks."""
    images, masks = folders
    for stem in ("b", "a 1", "süß/ñ"):
        save(images / f"{stem}.png", picture(stem))
        save(masks / f"{stem}.tif", MASK)
    return folders
