"""The committed reference pages are what the code generates."""

import pytest

from docs import reference
from tests import ROOT


@pytest.mark.parametrize("name", reference.pages())
def test_a_reference_page_is_what_the_code_generates(name: str):
    """`make docs` writes it."""
    assert (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") == reference.pages()[name]


def test_every_error_code_of_the_app_has_a_status():
    """The codes that clients rely on."""
    codes = {code: status for status, code, _ in reference.error_codes()}

    assert codes == {
        "ValidationError": 400,
        "Unauthorized": 401,
        "QuotaExceeded": 402,
        "Forbidden": 403,
        "NotFound": 404,
        "MethodNotAllowed": 405,
        "Conflict": 409,
        "IdempotencyMismatch": 409,
        "PreconditionFailed": 412,
        "PayloadTooLarge": 413,
        "UnsupportedMediaType": 415,
        "RateLimited": 429,
        "Internal": 500,
        "Unavailable": 503,
    }
