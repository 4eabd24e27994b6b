"""The admin commands, one module per noun: the same services as the API, no SQL of its own."""

from app.cli.root import main

__all__ = ["main"]
