"""The name and version of this distribution. Imports nothing heavy, because `--version` must be quick."""

from importlib.metadata import version
from typing import Final

NAME: Final = "cmem-server"
VERSION: Final = version(NAME)
