"""`maintenance`: what keeps a server small over years."""

import sys
from dataclasses import asdict

import click
from rich.console import Console
from rich.progress import Progress

from app.cli import console
from app.cli.vectors import camel
from app.services.operations import maintenance as service
from app.vectors.chroma.vacuum import vacuum
from app.vectors.errors import VectorsUnavailable


@click.group()
def maintenance() -> None:
    """Keep the server small, and deleted text off the disk."""


@maintenance.command()
@console.as_json
def run(as_json: bool) -> None:
    """Apply retention, forget what has outlived its use, purge deleted text, shrink the files, empty the log."""
    with (
        console.opened() as database,
        Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar,
    ):
        task = bar.add_task("beginning", total=None)
        days = console.loaded().audit_retention_days
        report = service.run(database, audit_days=days, progress=lambda step: bar.update(task, description=step))
        bar.update(task, description="vacuuming the vectors")
        vectors_vacuumed = _vacuum_vectors()
    shown = {**camel(asdict(report)), "vectorsVacuumed": vectors_vacuumed}
    console.show(shown, as_json=as_json, text=_as_text)


def _vacuum_vectors() -> bool:
    """Vacuum the embedded index; False when there is none, or a server has it."""
    settings = console.loaded()
    try:
        return settings.vectors == "embedded" and vacuum(settings.data_dir.absolute() / "chroma")
    except VectorsUnavailable as failure:
        raise click.ClickException(str(failure)) from failure


def _as_text(shown: dict[str, int | bool]) -> str:
    return "\n".join(f"{value:>8}  {name}" for name, value in shown.items())
