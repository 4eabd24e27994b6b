"""Groups that import a command when it is run."""

import click
from click.testing import CliRunner

from app.cli import root
from app.cli.lazy import LazyCommand, LazyCommands, LazyGroup


def test_commands_can_be_added_and_removed():
    """As with any group of click's."""
    commands = LazyCommands(root.DB_COMMANDS)
    commands["own"] = click.Command("own", help="A command.")

    assert set(commands) == {*root.DB_COMMANDS, "own"}
    assert len(commands) == len(root.DB_COMMANDS) + 1
    assert commands.short_help("own", 50) == "A command."
    del commands["own"], commands["copy"]
    assert set(commands) == root.DB_COMMANDS.keys() - {"copy"}
    assert "copy" not in commands


def test_a_missing_module_fails_only_the_command_that_needs_it():
    """The list of commands is complete without importing any of them."""
    group = LazyGroup("tools", table={"broken": LazyCommand("app.no_such_module", "main", "Cannot be imported.")})
    group.add_command(click.Command("working", callback=lambda: click.echo("done")))

    assert CliRunner().invoke(group, ["working"]).output == "done\n"
    assert "broken   Cannot be imported.\n" in CliRunner().invoke(group, ["--help"]).output
    assert isinstance(CliRunner().invoke(group, ["broken"]).exception, ModuleNotFoundError)
