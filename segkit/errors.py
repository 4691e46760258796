"""The errors a user meets: what was given, what is needed, the cure.

Every one derives from `SegkitError`. The command line prints its message in one line and exits
with status 2; a notebook shows it as any other exception.
"""

from pathlib import Path

from segkit._common import one_line


class SegkitError(Exception):
    """Base of every error segkit raises on purpose.

    Parameters
    ----------
    message : str
        What was given, what is needed, the cure.
    source : str or Path, optional
        The file, or place in it, that a caller must not name again: the message then begins with it.
    """

    def __init__(self, message: str = "", *, source: str | Path | None = None) -> None:
        super().__init__(one_line(str(message) if source is None else f"{source}: {message}"))
        self.reason = str(message)
        self.source = source


class InputError(SegkitError, ValueError):
    """Images, masks or arrays that segkit cannot work with."""


class ConfigError(SegkitError, ValueError):
    """An option, or a combination of options, that does not exist or does not fit."""


class WeightsError(SegkitError):
    """Network weights that are absent, cannot be downloaded, or do not fit the network."""


class ModelFileError(SegkitError):
    """A model file that is damaged, of another format version, or not a segkit model."""


class OutputError(SegkitError):
    """An output path that would overwrite something or cannot be written."""


class ClusterError(SegkitError):
    """Workers, or their scheduler, that do not answer or are lost."""
