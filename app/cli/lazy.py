"""Groups that import a command's module when the command is run, or its own help is shown, and not before.

`cmem-server --help` and `--version` then take as long as importing click, and a command imports only what it needs.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, NamedTuple

import click


class LazyCommand(NamedTuple):
    """A command that is not imported yet: where it is, and the first sentence of its help."""

    module: str
    attribute: str
    short_help: str

    def load(self) -> click.Command:
        """Import the module and return its command."""
        command: click.Command = getattr(import_module(self.module), self.attribute)
        return command


class LazyCommands(MutableMapping[str, click.Command]):
    """Commands by name, each imported when it is first looked up."""

    def __init__(self, table: Mapping[str, LazyCommand]) -> None:
        self.table = dict(table)
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            self._loaded[name] = self.table[name].load()
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        self.table.pop(name, None)
        self._loaded.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self.table or name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter({**self.table, **self._loaded})

    def __len__(self) -> int:
        return len({**self.table, **self._loaded})

    def short_help(self, name: str, limit: int) -> str:
        """Return the help of a command in at most `limit` characters, without importing it."""
        if name in self.table:
            return click.Command(name, help=self.table[name].short_help).get_short_help_str(limit)
        return self._loaded[name].get_short_help_str(limit)


class LazyGroup(click.Group):
    """A group whose commands are listed in a table and imported on demand."""

    def __init__(self, *args: Any, table: Mapping[str, LazyCommand], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.commands: LazyCommands = LazyCommands(table)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands as click does, with the help texts of the table."""
        names = self.list_commands(ctx)
        limit = formatter.width - 6 - max(map(len, names))
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands.short_help(name, limit)) for name in names])
