"""Progress bars: on a terminal only, and on standard error, so that scripts see none."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

COUNTED = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
"""Columns for work that is counted, with the time that it will still take."""


def bar(*columns: ProgressColumn) -> Progress:
    """Return a bar with these columns, by default those of rich."""
    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())


@contextmanager
def counting(label: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function that is called with how much is done, and of how much."""
    with bar() as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def steps(label: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that is called with the name of each step."""
    with bar() as progress:
        task = progress.add_task(label, total=None)
        yield lambda step: progress.update(task, description=step)
