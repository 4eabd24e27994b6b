"""What stands in docker/: read, linted, and run as far as that goes without an engine."""

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docker"
