"""The files in docker/: read, linted, and run as far as possible without a container engine."""

from tests import ROOT

FOLDER = ROOT / "docker"
