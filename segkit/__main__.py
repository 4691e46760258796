"""``python -m segkit`` is the command ``segkit``."""

from segkit.cli import main

main()
