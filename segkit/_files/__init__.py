"""How segkit writes: each file whole or not at all, each output folder by one program at a time."""

from segkit._files.lock import FolderLock, alone_in
from segkit._files.table import write_table
from segkit._files.write import (
    atomic,
    is_full,
    remove_unfinished,
    remove_unfinished_of,
    saving,
    without_sync,
    write_text,
)

__all__ = [
    "FolderLock",
    "alone_in",
    "atomic",
    "is_full",
    "remove_unfinished",
    "remove_unfinished_of",
    "saving",
    "without_sync",
    "write_table",
    "write_text",
]
