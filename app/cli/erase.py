"""`erase`: deletes everything of one person in a team, and prints a receipt."""

import click
import msgspec

from app.cli import console
from app.services.deletion import erasure
from app.services.deletion.erasure import Selector


@click.command()
@console.of_team
@click.option("--actor", metavar="ID", help="Id of a member or key: what they wrote.")
@click.option("--platform-source", metavar="NAME", help="Rows that came from this platform.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Rows with this value in their metadata.")
@console.dry_run
@console.as_json
def erase(
    team: str,
    actor: str | None,
    platform_source: str | None,
    metadata: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Erase all data of one person. Only rows in the team that match every given option are erased."""
    selector = Selector(platform_source=platform_source, actor=actor, metadata=_pairs(metadata))
    with console.open_database() as database:
        receipt = erasure.erase(database, console.caller_in_team(database, team), selector, dry_run=dry_run)
    reply = console.camel(msgspec.structs.asdict(receipt))
    console.show(
        reply, as_json=as_json, text=lambda _: "\n".join(f"{value!s:>40}  {name}" for name, value in reply.items())
    )


def _pairs(metadata: tuple[str, ...]) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in metadata]
    if not all(key and sign for key, sign, _ in pairs):
        raise click.BadParameter("must be KEY=VALUE", param_hint="--metadata")
    return {key: value for key, _, value in pairs}
