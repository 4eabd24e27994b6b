"""What every body has in common: camelCase, strict types, unknown keys refused, lengths bounded."""

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta

from app.services.shared import slugs

MAX_TEXT_LENGTH: Final = 1_000_000
MAX_EPOCH_MS: Final = 253_402_300_799_999  # the end of the year 9999
MAX_BATCH: Final = 500


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A body as it travels. Replies have no defaults, so that generated clients see every field."""


class LenientWire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body whose senders are hooks of several tools: what it does not know, it ignores."""


Text = Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)]
Name = Annotated[str, Meta(min_length=1, max_length=300, pattern=r"\S")]
Slug = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=slugs.MAX_LENGTH,
        description="Lower-case letters and digits of any script, joined by single hyphens.",
    ),
]
Label = Annotated[str, Meta(min_length=1, max_length=1_000)]
Id = Annotated[str, Meta(max_length=MAX_TEXT_LENGTH, description="An id, opaque: one of an odd form is unknown.")]
EpochMs = Annotated[int, Meta(ge=0, le=MAX_EPOCH_MS, description="Epoch milliseconds, UTC.")]
Words = Annotated[list[Text], Meta(max_length=10_000)]
Object = dict[str, Any]


View = TypeVar("View", bound=Wire)


def to_view(view: type[View], record: object, **extra: Any) -> View:
    """Return a reply whose fields are the record's attributes of the same names; `extra` sets the others."""
    names = [name for name in view.__struct_fields__ if name not in extra]
    return view(**{name: getattr(record, name) for name in names}, **extra)


def extract_changes(patch: Wire, **cleared: Any) -> dict[str, Any]:
    """Return the fields that a PATCH sets. `cleared` holds what null stands for in fields that cannot be null."""
    changes = {name: value for name, value in msgspec.structs.asdict(patch).items() if value is not UNSET}
    return {name: cleared.get(name) if value is None else value for name, value in changes.items()}


class IssueView(Wire, frozen=True, kw_only=True):
    """One fault of the input."""

    path: str
    message: str


class Problem(Wire, frozen=True, kw_only=True):
    """What went wrong, as RFC 9457 problem details with a stable code in `error`."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    error: str
    message: str
    issues: list[IssueView]
    request_id: str
