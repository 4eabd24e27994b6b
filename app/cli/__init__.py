"""The admin commands, one module each: they call the same services as the API and contain no SQL of their own."""

from app.cli.root import main

__all__ = ["main"]
