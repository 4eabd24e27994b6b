"""Every command of the program, with arguments that it accepts: a new command is found by itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from app.cli import main

VALUES = {"--to": "postgresql+psycopg://cmem_owner@127.0.0.1:1/cmem"}
"""Arguments that must have a certain form."""


def groups(group: click.Group = main, path: str = "") -> Iterator[tuple[str, click.Group]]:
    """Yield all groups with what is typed to reach them."""
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from groups(command, f"{path} {name}".strip())


def leaves() -> dict[str, click.Command]:
    """Return all commands that are not groups, by what is typed to run them."""
    return {
        f"{path} {name}".strip(): command
        for path, group in groups()
        for name, command in group.commands.items()
        if not isinstance(command, click.Group)
    }


def command_line(path: str, folder: Path) -> list[str]:
    """Return a command with a value for everything that it requires; files are made in a folder."""
    line = path.split()
    for parameter in leaves()[path].params:
        if parameter.required:
            value = _value(parameter, folder)
            line += [value] if isinstance(parameter, click.Argument) else [parameter.opts[0], value]
    return line


def _value(parameter: click.Parameter, folder: Path) -> str:
    kind: Any = parameter.type
    if parameter.opts[0] in VALUES:
        return VALUES[parameter.opts[0]]
    if isinstance(kind, click.Path):
        path = folder / f"{parameter.name}"
        if kind.file_okay:
            path.write_text("")
        else:
            path.mkdir()
        return str(path)
    if isinstance(kind, click.IntRange):
        return str(kind.min)
    return "x"
