"""`erase`: removes everything of a person from a team, and prints the receipt."""

import click
import msgspec

from app.cli import console
from app.cli.vectors import camel
from app.services.deletion import erasure
from app.services.deletion.erasure import Selector


@click.command()
@console.of_team
@click.option("--actor", metavar="ID", help="A member, or a key: what they wrote.")
@click.option("--platform-source", metavar="NAME", help="What came from this platform.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Rows with this in their metadata.")
@click.option("--dry-run", is_flag=True, help="Count, and change nothing.")
@console.as_json
def erase(
    team: str,
    actor: str | None,
    platform_source: str | None,
    metadata: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove what one person left in a team; options that are given must hold together."""
    selector = Selector(platform_source=platform_source, actor=actor, metadata=_pairs(metadata))
    with console.opened() as database:
        receipt = erasure.erase(database, console.within(database, team), selector, dry_run=dry_run)
    shown = camel(msgspec.structs.asdict(receipt))
    console.show(
        shown, as_json=as_json, text=lambda _: "\n".join(f"{value!s:>40}  {name}" for name, value in shown.items())
    )


def _pairs(metadata: tuple[str, ...]) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in metadata]
    if not all(key and sign for key, sign, _ in pairs):
        raise click.BadParameter("write it as KEY=VALUE", param_hint="--metadata")
    return {key: value for key, _, value in pairs}
