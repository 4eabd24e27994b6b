"""Splits incoming NDJSON into lines, decodes them and groups them into batches, in constant memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from app.errors import Invalid
from app.services.transfer.importing import BATCH_BYTES, BATCH_ROWS, ImportSummary, Numbered
from app.services.transfer.transfer_records import Record

MAX_LINE_BYTES: Final = 32 * 1024 * 1024

Decode = Callable[[bytes], Record]
"""Raises Invalid for a line that is not of the format."""


@dataclass(slots=True)
class Batches:
    """Turns chunks of a file into batches of records. A line that cannot be decoded is counted as failed."""

    decode: Decode
    report: ImportSummary
    _rest: bytearray = field(default_factory=bytearray)
    _batch: list[Numbered] = field(default_factory=list)
    _bytes: int = 0
    _line: int = 0

    def feed(self, chunk: bytes) -> Iterator[list[Numbered]]:
        """Add a chunk; yield the batches that are full. Raises Invalid for a file that is not an export."""
        self._rest += chunk
        if b"\n" in chunk:
            *lines, rest = self._rest.split(b"\n")
            self._rest = rest
            for line in lines:
                yield from self._add(bytes(line))
        if len(self._rest) > MAX_LINE_BYTES:
            raise Invalid.field("body", f"line {self._line + 1} is longer than {MAX_LINE_BYTES} bytes")

    def rest(self) -> Iterator[list[Numbered]]:
        """Yield the last batches at the end of the file."""
        yield from self._add(bytes(self._rest))
        self._rest = bytearray()
        yield self._batch

    def _add(self, line: bytes) -> Iterator[list[Numbered]]:
        self._line += 1
        if not line.strip():
            return
        try:
            self._batch.append((self._line, self.decode(line)))
        except Invalid as refusal:
            if self._line == 1:
                raise Invalid.field("body", "not a cmem-server export: the first line must be its header") from None
            self.report.fail(self._line, str(refusal))
        self._bytes += len(line)
        if len(self._batch) >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            full, self._batch, self._bytes = self._batch, [], 0
            yield full
