"""Replies filled from records, and the fields that a PATCH sets."""

from dataclasses import dataclass

import pytest
from msgspec import UNSET, UnsetType

from app.api.http.schemas import Wire, changes_in, view_of


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


def test_view_holds_the_fields_that_it_names():
    """A record may have more attributes; the reply says nothing of them."""
    assert view_of(RecordView, Record("one", secret="x"), score=0.5) == RecordView(id="one", score=0.5)


def test_extra_fields_replace_attributes_of_the_record():
    """A reply may show another value than the row has."""
    assert view_of(RecordView, Record("one", secret="x"), id="two", score=0.5).id == "two"


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
    assert changes_in(patch, tags=[]) == changes
