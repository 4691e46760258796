"""Header of an image file, read before anything is decoded: its format, and the bytes that its pixels need."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    WebPImagePlugin,
)

from segkit._common.memory import require_bytes
from segkit.errors import InputError


class Format(NamedTuple):
    """A format of images: the extensions of its files, their first bytes, and Pillow's reader; tifffile reads TIFF."""

    extensions: tuple[str, ...]
    starts: tuple[bytes, ...]
    reader: type[ImageFile.ImageFile] | None = None


_PNM = tuple(f"P{number}".encode() for number in range(1, 7))
# Pillow's readers open files by themselves: Image.open refuses slides, by a limit of the whole program.
FORMATS = {
    "BMP": Format((".bmp", ".dib"), (b"BM",), BmpImagePlugin.BmpImageFile),
    "GIF": Format((".gif",), (b"GIF8",), GifImagePlugin.GifImageFile),
    "JPEG": Format((".jpg", ".jpeg", ".jpe", ".jfif"), (b"\xff\xd8\xff",), JpegImagePlugin.JpegImageFile),
    "PNG": Format((".png",), (b"\x89PNG",), PngImagePlugin.PngImageFile),
    "PNM": Format((".pbm", ".pgm", ".ppm", ".pnm"), _PNM, PpmImagePlugin.PpmImageFile),
    "TIFF": Format(
        (".tif", ".tiff", ".btf", ".tf2", ".tf8", ".lsm", ".stk"),
        (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    ),
    "WebP": Format((".webp",), (), WebPImagePlugin.WebPImageFile),  # its name comes after its size
}
# First bytes of formats that are named where one of the above is expected.
_OTHERS = {"JPEG 2000": b"\0\0\0\x0cjP  ", "PDF": b"%PDF", "ZIP": b"PK\x03\x04"}
_WEBP = (b"RIFF", b"WEBP")

# Pixels of so few bytes are decoded whatever the file says: no machine is harmed.
HARMLESS_BYTES = 2**26
# Most bytes of pixels for each byte of a file. A blank image reaches 1,030 by deflate, 2,700 by LZW, 5,800 by Zstandard in
# the strips of 256 KiB that tifffile writes, and eight times 1,030 with a bit for each pixel.
MOST_EXPANSION = 10_000


def format_of(path: Path) -> str:
    """Return the format of a file by its first bytes; "" of an unknown one."""
    with path.open("rb") as file:
        head = file.read(16)
    if head[:4] == _WEBP[0] and head[8:12] == _WEBP[1]:
        return "WebP"
    starts = {name: known.starts for name, known in FORMATS.items()} | _OTHERS
    return next((name for name, start in starts.items() if head.startswith(start)), "")


def check_format(path: Path, expected: tuple[str, ...]) -> str:
    """Return the format of a file; refuse another one than the extension says."""
    found = format_of(path)
    if found in expected:
        return found
    *others, last = expected
    wanted = f"{', '.join(others)} or {last}" if others else last
    if not found:
        raise InputError(
            f"cannot be decoded (its content is no {wanted}): copy or export it again", source=path
        )
    cure = (
        f"name it {path.stem}{FORMATS[found].extensions[0]}" if found in FORMATS else "save it as PNG or TIFF"
    )
    raise InputError(f"a {found} file, expected {wanted} by its extension: {cure}", source=path)


def is_lossy(path: Path) -> bool:
    """Return whether values of a file may have been changed by its compression."""
    found = format_of(path)
    return found == "JPEG" or (found == "WebP" and b"VP8L" not in path.read_bytes())


def refuse_bomb(path: Path, n_values: int, itemsize: int, size: str) -> None:
    """Refuse pixels that cannot be in the file, or do not fit into memory as they are stored and as float32."""
    on_disk, n_bytes = path.stat().st_size, n_values * itemsize
    if n_bytes > max(HARMLESS_BYTES, MOST_EXPANSION * on_disk):
        raise InputError(
            f"declares {size} pixels ({n_bytes / 1e9:,.1f} GB) in a file of {on_disk:,} bytes, which cannot hold "
            f"them: it is damaged, or made to fill the memory: copy or export it again",
            source=path,
        )
    if (needed := n_bytes + n_values * 4) > HARMLESS_BYTES:
        require_bytes(needed, what=f"{size} pixels", source=path)
