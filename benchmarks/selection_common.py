"""What the benchmarks of kernel selection share: records that outlive a cut."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import digest_sources, write_result
from segkit.benchmark.machine import machine


class Records:
    """Records of one result file, written as they are finished; those it holds already are kept.

    Parameters
    ----------
    path : Path
        The result file; remove it to start anew.
    identity : sequence of str
        Entries that tell a record from the others.
    notes : sequence of str
        How the measurement is made.
    settings : mapping
        What every record depends on, in numbers and words that JSON can hold.
    resume : bool
        Whether to keep what the file holds, which must be of the same settings.
    """

    def __init__(
        self,
        path: Path,
        identity: Sequence[str],
        notes: Sequence[str],
        settings: Mapping[str, Any],
        *,
        resume: bool,
    ) -> None:
        self.path, self.identity, self.notes, self.settings = path, identity, notes, dict(settings)
        self.records: list[dict[str, Any]] = []
        if resume and path.is_file():
            held = json.loads(path.read_text(encoding="utf-8"))
            if held.get("settings") != self.settings:
                raise SystemExit(f"{path} holds records of other settings: give another file with --out")
            self.records = held["records"]

    def holds(self, **identity: Any) -> bool:
        """Tell whether there is a record of that identity."""
        return any(all(record[name] == identity[name] for name in self.identity) for record in self.records)

    def add(self, record: dict[str, Any]) -> None:
        """Add a record and write the file."""
        self.records.append({**record, "sources": digest_sources()})
        self.write()

    def write(self, **summary: Any) -> None:
        """Write the file, with what sums the records up."""
        told = {"notes": list(self.notes), "settings": self.settings}
        write_result(self.path, {**told, **summary, "records": self.records, "machine": machine()})

    def report(self, text: str) -> None:
        """Print tables, and write them beside the result file under its notes."""
        notes = "".join(f"- {note}\n" for note in self.notes)
        self.path.with_suffix(".md").write_text(f"{notes}\n{text}\n", encoding="utf-8")
        print(text)
