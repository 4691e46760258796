"""How segkit writes: each file whole or not at all, each output folder by one program at a time."""

from segkit._files.lock import FolderLock
from segkit._files.write import atomic, is_full, remove_unfinished, saving, write_text

__all__ = ["FolderLock", "atomic", "is_full", "remove_unfinished", "saving", "write_text"]
