"""Logging: text on a terminal, JSON otherwise. No caller passes in a key, a token or the text of a memory."""

import logging
import sys
from typing import Any, Literal

import structlog

LogFormat = Literal["auto", "text", "json"]


def configure(level: str, log_format: LogFormat) -> None:
    """Send our log lines and those of libraries to standard error, in one format."""
    as_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any = structlog.dev.ConsoleRenderer() if as_text else structlog.processors.JSONRenderer()
    exceptions = [] if as_text else [structlog.processors.format_exc_info]
    structlog.configure(
        processors=[*shared, *exceptions, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *exceptions, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = True
