"""`maintenance`: what keeps a server small over years."""

from dataclasses import asdict

import click

from app.cli import console, progress
from app.services.operations import maintenance as service
from app.settings import Settings
from app.vectors.chroma.vacuum import vacuum
from app.vectors.errors import VectorsUnavailable


@click.group()
def maintenance() -> None:
    """Keep the server small and deleted text off disk."""


@maintenance.command()
@console.as_json
def run(as_json: bool) -> None:
    """Apply retention, delete expired rows, purge deleted text, shrink the files and empty the log."""
    settings = console.load_settings()
    with console.open_database() as database, progress.steps("starting") as advance:
        report = service.run(database, audit_days=settings.audit_retention_days, progress=advance)
        advance("vacuuming the vectors")
        vectors_vacuumed = _vacuum_vectors(settings)
    reply = {**console.camel(asdict(report)), "vectorsVacuumed": vectors_vacuumed}
    console.show(reply, as_json=as_json, text=_as_text)


def _vacuum_vectors(settings: Settings) -> bool:
    """Vacuum the embedded index; False when there is none, or a server has it open."""
    try:
        return settings.vectors == "embedded" and vacuum(settings.data_dir.absolute() / "chroma")
    except VectorsUnavailable as failure:
        raise click.ClickException(str(failure)) from failure


def _as_text(report: dict[str, int | bool]) -> str:
    return "\n".join(f"{value:>8}  {name}" for name, value in report.items())
