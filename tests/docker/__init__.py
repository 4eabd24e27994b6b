"""What stands in docker/: read, linted, and run as far as that goes without an engine."""

from tests import ROOT

FOLDER = ROOT / "docker"
