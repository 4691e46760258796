"""The page of ``segkit annotate``: a local web server, and what the browser shows.

The page draws strokes and shows predictions. All learning is in `segkit.live`; the server only translates.
"""

from segkit.annotate.server import make_app, serve
from segkit.annotate.start import remember, serve_start

__all__ = ["make_app", "remember", "serve", "serve_start"]
