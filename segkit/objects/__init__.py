"""Objects: numbered, measured, in tables and in pictures."""

from segkit.objects.measure import measure

__all__ = ["measure"]
