"""The command ``segkit``."""
