"""A human-readable export: the memories of a project as Markdown, by day, newest last."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from app.services.transfer.transfer_records import MemoryRecord, ProjectRecord, Record


def lines(records: Iterable[Record]) -> Iterator[str]:
    """Yield the text of an export piece by piece; sessions and events are left out."""
    day = ""
    for record in records:
        if isinstance(record, ProjectRecord):
            day = ""
            yield f"# {_one_line(record.name)}\n\n"
        if isinstance(record, MemoryRecord):
            moment = datetime.fromtimestamp(record.created_at_epoch / 1000, UTC)
            if (date := moment.strftime("%Y-%m-%d")) != day:
                day = date
                yield f"## {day}\n\n"
            yield from _memory(record, moment.strftime("%H:%M"))


def _memory(record: MemoryRecord, time: str) -> Iterator[str]:
    heading = record.title or record.subtitle or record.type
    yield f"### {time} {_one_line(heading)} ({_one_line(record.type)})\n\n"
    for text in (record.subtitle, record.narrative, record.text):
        if text and text != heading:
            yield f"{text}\n\n"
    if record.facts:
        yield "".join(f"- {_one_line(fact)}\n" for fact in record.facts) + "\n"
    for label, words in (
        ("concepts", record.concepts),
        ("read", record.files_read),
        ("changed", record.files_modified),
    ):
        if words:
            yield f"*{label}: {', '.join(map(_one_line, words))}*\n\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())
