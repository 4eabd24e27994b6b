"""PostgreSQL URLs and the option that only the driver knows."""

import pytest

from app.store.engines.postgres_url import CONNECT_TIMEOUT_SECONDS, parse_url

URL = "postgresql+psycopg://cmem@db/cmem?sslmode=require"


@pytest.mark.parametrize(("option", "threshold"), [("none", None), ("0", 0), ("5", 5)])
def test_prepare_threshold_is_passed_to_the_driver(option: str, threshold: int | None):
    """It is no longer in the URL, whose other options stay there."""
    address, options = parse_url(f"{URL}&prepare_threshold={option}")

    assert options == {"connect_timeout": CONNECT_TIMEOUT_SECONDS, "prepare_threshold": threshold}
    assert address.render_as_string() == URL


def test_url_without_the_option_leaves_the_driver_its_default():
    """And each caller gets options of its own to add to."""
    address, options = parse_url(URL)
    options["application_name"] = "changed"

    assert address.render_as_string() == URL
    assert parse_url(URL)[1] == {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
