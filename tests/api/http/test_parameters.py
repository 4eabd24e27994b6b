"""Times in queries: epoch milliseconds or RFC 3339."""

import pytest

from app.api.http.parameters import epoch_ms
from app.api.http.schemas import MAX_EPOCH_MS
from app.errors import Invalid, Issue


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        (None, None),
        ("0", 0),
        (str(MAX_EPOCH_MS), MAX_EPOCH_MS),
        ("2026-05-20T00:00:00Z", 1_779_235_200_000),
        ("2026-05-20t00:00:00.0015z", 1_779_235_200_002),
        ("2026-05-20 02:00:00+02:00", 1_779_235_200_000),
    ],
)
def test_time_is_read_to_the_millisecond(text: str | None, moment: int | None):
    """RFC 3339 allows lower case, and a space for the T."""
    assert epoch_ms("since", text) == moment


@pytest.mark.parametrize(
    "text",
    ["", "-1", "1.5", "٣", str(MAX_EPOCH_MS + 1), "2026-05-20", "2026-05-20T00:00:00", "2026-02-31T00:00:00Z", "now"],
)
def test_other_text_is_rejected_by_the_name_of_its_parameter(text: str):
    """A time without an offset would depend on where the server is."""
    with pytest.raises(Invalid) as failure:
        epoch_ms("since", text)

    message = "must be epoch milliseconds or an RFC 3339 time with a UTC offset"
    assert failure.value.issues == (Issue("query.since", message),)
