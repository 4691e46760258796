"""How segkit writes: each file completely or not at all, one program at a time in an output folder."""

from segkit._files.lock import locked, locked_folder
from segkit._files.write import (
    atomic,
    is_full,
    remove_unfinished,
    remove_unfinished_of,
    saving,
    stamp_of,
    without_sync,
    write_table,
    write_text,
)

__all__ = [
    "atomic",
    "is_full",
    "locked",
    "locked_folder",
    "remove_unfinished",
    "remove_unfinished_of",
    "saving",
    "stamp_of",
    "without_sync",
    "write_table",
    "write_text",
]
