"""What all bodies have in common: camelCase, strict types, no unknown keys, bounded lengths."""

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta

from app.services.shared import slugs

MAX_TEXT_LENGTH: Final = 1_000_000
MAX_EPOCH_MS: Final = 253_402_300_799_999  # the end of the year 9999
MAX_BATCH: Final = 500


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A body on the wire. Replies have no defaults, so that generated clients treat every field as present."""


class LenientWire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body sent by the hooks of several tools: unknown keys are ignored."""


Text = Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)]
Name = Annotated[str, Meta(min_length=1, max_length=300, pattern=r"\S")]
Slug = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=slugs.MAX_LENGTH,
        description="Lower-case letters and digits of any script, separated by single hyphens.",
    ),
]
Label = Annotated[str, Meta(min_length=1, max_length=1_000)]
Id = Annotated[
    str, Meta(max_length=MAX_TEXT_LENGTH, description="An id. Treat it as opaque; a malformed one is simply unknown.")
]
EpochMs = Annotated[int, Meta(ge=0, le=MAX_EPOCH_MS, description="Epoch milliseconds, UTC.")]
StringList = Annotated[list[Text], Meta(max_length=10_000)]
Object = dict[str, Any]


View = TypeVar("View", bound=Wire)


def to_view(view: type[View], record: object, **extra: Any) -> View:
    """Return a reply with the record's attributes of the same names; `extra` sets the other fields."""
    names = [name for name in view.__struct_fields__ if name not in extra]
    return view(**{name: getattr(record, name) for name in names}, **extra)


def extract_changes(patch: Wire, **cleared: Any) -> dict[str, Any]:
    """Return the fields that a PATCH sets. `cleared` has the values to store for null in fields that cannot be null."""
    changes = {name: value for name, value in msgspec.structs.asdict(patch).items() if value is not UNSET}
    return {name: cleared.get(name) if value is None else value for name, value in changes.items()}


class IssueView(Wire, frozen=True, kw_only=True):
    """One invalid field of the input."""

    path: str
    message: str


class Problem(Wire, frozen=True, kw_only=True):
    """RFC 9457 problem details, with a stable code in `error`."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    error: str
    message: str
    issues: list[IssueView]
    request_id: str
