"""Replies filled from records, and the fields that a PATCH sets."""

from dataclasses import dataclass

import pytest
from msgspec import UNSET, UnsetType

from app.api.http.schemas import Wire, extract_changes, to_view


@dataclass
class Record:
    id: str
    secret: str


class RecordView(Wire, frozen=True, kw_only=True):
    id: str
    score: float


class RecordPatch(Wire, frozen=True, kw_only=True):
    name: str | UnsetType | None = UNSET
    tags: list[str] | UnsetType | None = UNSET


def test_view_has_only_its_own_fields():
    """Other attributes of the record are not in the reply."""
    assert to_view(RecordView, Record("one", secret="x"), score=0.5) == RecordView(id="one", score=0.5)


def test_extra_fields_override_attributes_of_the_record():
    """A reply may show another value than the row has."""
    assert to_view(RecordView, Record("one", secret="x"), id="two", score=0.5).id == "two"


@pytest.mark.parametrize(
    ("patch", "changes"),
    [
        (RecordPatch(), {}),
        (RecordPatch(name="new"), {"name": "new"}),
        (RecordPatch(name=None), {"name": None}),
        (RecordPatch(tags=None), {"tags": []}),
        (RecordPatch(tags=["x"]), {"tags": ["x"]}),
    ],
)
def test_patch_sets_only_the_fields_that_were_sent(patch: RecordPatch, changes: dict[str, object]):
    """Null clears a field: to None, or to the empty value of a field that cannot be null."""
    assert extract_changes(patch, tags=[]) == changes
