"""``python -m segkit`` is the command ``segkit``."""

from segkit.cli.entry import main

main()
