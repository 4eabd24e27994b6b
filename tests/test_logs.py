"""Logging: one format on standard error, for our lines and those of libraries."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from app import logs


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a test configures."""
    root = logging.getLogger()
    handlers, level, config = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:], root.level = handlers, level
    structlog.configure(**config)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_lines_of_the_server_and_of_libraries_have_one_format(capsys: pytest.CaptureFixture[str]):
    """JSON, since standard error is no terminal here; times are UTC."""
    logs.configure("INFO", "auto")
    structlog.get_logger().info("saved", memories=2)
    logging.getLogger("a.library").warning("slow %s", "disk")
    ours, theirs = lines(capsys)

    assert (ours["event"], ours["memories"], ours["level"]) == ("saved", 2, "info")
    assert (theirs["event"], theirs["level"]) == ("slow disk", "warning")
    assert all(str(line["timestamp"]).endswith("Z") for line in (ours, theirs))


def test_lines_below_the_level_are_dropped(capsys: pytest.CaptureFixture[str]):
    """For both kinds of loggers."""
    logs.configure("WARNING", "json")
    structlog.get_logger().info("saved")
    logging.getLogger("a.library").info("saved")

    assert lines(capsys) == []


def test_failure_is_logged_on_one_line_without_local_variables(capsys: pytest.CaptureFixture[str]):
    """A traceback shows code, and never the values that a secret could be among."""
    logs.configure("INFO", "json")

    def fail(api_key: str) -> None:
        raise ValueError(len(api_key))

    secret = "cmem_" + str(1234) * 2
    try:
        fail(secret)
    except ValueError:
        structlog.get_logger().exception("failed")
    (line,) = lines(capsys)

    assert "ValueError: 13" in str(line["exception"])
    assert secret not in json.dumps(line)


def test_uvicorn_does_not_log_requests(capsys: pytest.CaptureFixture[str]):
    """Its lines would contain queries."""
    logs.configure("DEBUG", "json")
    logging.getLogger("uvicorn.access").info("GET /v1/search?query=private")

    assert lines(capsys) == []


def test_text_is_readable(capsys: pytest.CaptureFixture[str]):
    """A level, an event and its fields on each line."""
    logs.configure("INFO", "text")
    structlog.get_logger().info("saved", memories=2)

    text = capsys.readouterr().err
    assert "saved" in text
    assert not text.startswith("{")
