"""Chunks of a file become batches of numbered records."""

import msgspec
import pytest

from app.errors import Invalid
from app.services.transfer import ndjson
from app.services.transfer.importing import BATCH_ROWS, ImportSummary
from app.services.transfer.ndjson import Batches
from app.services.transfer.transfer_records import Header, Record, SupersessionRecord

HEADER = b'{"record":"header"}\n'


def decode(line: bytes) -> Record:
    try:
        return msgspec.json.decode(line, type=Header | SupersessionRecord)
    except msgspec.MsgspecError as failure:
        raise Invalid.field("record", str(failure)) from None


def line(number: int) -> bytes:
    return msgspec.json.encode(SupersessionRecord(memory_id=str(number), superseded_by="x"))


def read(*chunks: bytes) -> tuple[list[list[int]], ImportSummary]:
    """Return the line numbers of each batch, and the report."""
    batches = Batches(decode, ImportSummary())
    made = [batch for chunk in chunks for batch in batches.feed(chunk)] + list(batches.rest())
    return [[number for number, _ in batch] for batch in made], batches.report


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_records_do_not_depend_on_how_the_file_is_cut(size: int):
    """The last line may lack its newline, and blank lines still count as lines."""
    content = HEADER + line(1) + b"\r\n\n  \n" + line(2)

    assert read(*(content[start : start + size] for start in range(0, len(content), size)))[0] == [[1, 2, 5]]


def test_batches_are_full_except_the_last():
    """A write transaction stays short, however many lines a chunk has."""
    lengths = [len(batch) for batch in read(HEADER + b"\n".join(map(line, range(2 * BATCH_ROWS))))[0]]

    assert lengths == [BATCH_ROWS, BATCH_ROWS, 1]


def test_long_lines_fill_a_batch_by_their_bytes(monkeypatch: pytest.MonkeyPatch):
    """Memory use is bounded by size and not by count alone."""
    monkeypatch.setattr(ndjson, "BATCH_BYTES", 2 * len(line(10)))

    assert read(HEADER + b"\n".join(map(line, range(10, 14))))[0] == [[1, 2, 3], [4, 5], []]


def test_line_that_cannot_be_decoded_is_counted_by_its_number():
    """The others are kept."""
    batches, report = read(HEADER + line(1) + b"\nnonsense\n" + line(2))

    assert (batches, report.failed, report.warnings[0].line) == ([[1, 2, 4]], 1, 3)


def test_file_whose_first_line_cannot_be_decoded_is_rejected_at_once():
    """It is another kind of file: its lines are not reported one by one."""
    with pytest.raises(Invalid, match="not a cmem-server export"):
        read(b"PK\x03\x04\n", line(1))


def test_endless_line_is_rejected_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch):
    """With its number."""
    monkeypatch.setattr(ndjson, "MAX_LINE_BYTES", 100)
    with pytest.raises(Invalid, match="line 2 is longer than 100 bytes"):
        read(HEADER, b"x" * 60, b"x" * 60)
