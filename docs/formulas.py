"""Formulas of docstrings as MathML, which browsers draw themselves: no script, nothing to download."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

_INLINE = r":math:`([^`]+)`"
_BLOCK = re.compile(r"(?P<indent>\s*)\.\. math::\s*(?P<formula>.*)")
# Above code in backticks, which has 190.
_PRIORITY = 195


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # noqa: ARG002, N802
        return self.md.htmlStash.store(convert(m[1])), m.start(0), m.end(0)


class _Blocks(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return list(self._replaced(lines))

    def _replaced(self, lines: list[str]) -> Iterator[str]:
        rest = iter([*lines, ""])
        for line in rest:
            found = _BLOCK.fullmatch(line)
            if found is None:
                yield line
                continue
            formula, indent, line = found["formula"], found["indent"], next(rest, "")
            if not formula and not line.strip():
                line = next(rest, "")
            while line.strip() and line.startswith(indent + " "):
                formula, line = f"{formula} {line.strip()}", next(rest, "")
            drawn = f'<div class="formula">{convert(formula.strip(), display="block")}</div>'
            yield from (self.md.htmlStash.store(drawn), "", line)


class _Formulas(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.preprocessors.register(_Blocks(md), "formula_blocks", _PRIORITY)
        md.inlinePatterns.register(_Inline(_INLINE, md), "formulas", _PRIORITY)


def on_config(config: Any) -> Any:
    """Let MkDocs, and mkdocstrings with it, know formulas."""
    config.markdown_extensions.append(_Formulas())
    return config
