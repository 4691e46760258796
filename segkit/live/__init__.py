"""A session that learns while strokes are painted."""
