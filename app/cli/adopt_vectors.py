"""`legacy adopt-vectors`: takes over the vectors of a claude-mem Chroma folder."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from app.cli import console, progress
from app.cli.vectors import open_index, require_index, wait_for
from app.services.operations import vector_adoption
from app.vectors.errors import OwnedElsewhere
from app.vectors.sync import adoption


@click.command("adopt-vectors")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@console.of_team
@console.as_json
def adopt_vectors(folder: Path, team: str, as_json: bool) -> None:
    """Take over the vectors in FOLDER for imported memories. FOLDER is not changed; other memories are embedded."""
    with open_index() as (database, maybe_index), progress.counting("adopting") as advance:
        index = require_index(maybe_index)
        caller = console.caller_in_team(database, team)
        try:
            index.connect()
        except OwnedElsewhere:
            with database.write() as connection:
                operation = vector_adoption.request(connection, caller, folder)
            result = wait_for(database, caller, operation.id, advance)
        else:
            try:
                with adoption.open_folder(folder) as pages:
                    result = asdict(vector_adoption.adopt(database, index, caller, pages, advance))
            except adoption.NotAChromaFolder as failure:
                raise click.ClickException(str(failure)) from failure
    console.show(console.camel(result), as_json=as_json, text=_as_text)


def _as_text(result: dict[str, Any]) -> str:
    return (
        f"Took over {result['adopted']} of {result['vectors']} vectors and embedded {result['embedded']} texts"
        f" in {result['projects']} projects; {result['otherModel']} vectors come from another model"
    )
