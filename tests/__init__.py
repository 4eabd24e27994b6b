"""The tests mirror the rooms of `app/`. ROOT is the checkout; SHARED is an optional folder of data beside it."""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SHARED: Final = Path(os.environ.get("CMEM_SHARED", ROOT.parent / "shared"))
