"""`legacy adopt-vectors`: takes over the vectors of a claude-mem Chroma folder."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from app.cli import console
from app.cli.vectors import camel, follow, opened, progress_bar, required
from app.services.operations import vector_adoption
from app.vectors.errors import OwnedElsewhere
from app.vectors.sync import adoption


@click.command("adopt-vectors")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@console.of_team
@console.as_json
def adopt_vectors(folder: Path, team: str, as_json: bool) -> None:
    """Take over the vectors in FOLDER for memories that were imported; the rest is embedded. FOLDER stays as it is."""
    with opened() as (database, maybe_index), progress_bar("adopting") as progress:
        index = required(maybe_index)
        caller = console.within(database, team)
        try:
            index.connect()
        except OwnedElsewhere:
            with database.write() as connection:
                asked = vector_adoption.request(connection, caller, folder)
            result = follow(database, caller, asked.id, progress)
        else:
            try:
                with adoption.opened(folder) as pages:
                    result = asdict(vector_adoption.adopt(database, index, caller, pages, progress))
            except adoption.NotAChromaFolder as failure:
                raise click.ClickException(str(failure)) from failure
    console.show(camel(result), as_json=as_json, text=_as_text)


def _as_text(result: dict[str, Any]) -> str:
    return (
        f"{result['adopted']} of {result['vectors']} vectors taken over, {result['embedded']} texts embedded,"
        f" in {result['projects']} projects; {result['otherModel']} vectors are of another model"
    )
