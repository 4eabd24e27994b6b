"""What every body has in common: camelCase, strict types, unknown keys refused, lengths bounded."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

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
