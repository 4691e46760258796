"""``python -m segkit`` is the command ``segkit``."""

from segkit.cli.commands import main

main()
