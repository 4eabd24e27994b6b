"""`openapi`: writes the committed OpenAPI document, or checks it."""

from pathlib import Path

import click
import msgspec

from app.main import openapi_document

PATH = Path("openapi/openapi.json")


@click.command()
@click.option("--check", is_flag=True, help="Write nothing. Exits 1 when the file differs from the code.")
@click.option("--path", type=click.Path(dir_okay=False, path_type=Path), default=PATH, show_default=True)
def openapi(check: bool, path: Path) -> None:
    """Write the OpenAPI document from the code."""
    text = generated()
    if not check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(f"Wrote {path}")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        raise click.ClickException(f"{path} differs from the code. Run `cmem-server openapi`.")
    else:
        click.echo(f"{path} matches the code")


def generated() -> str:
    """Return the text of the committed file."""
    return msgspec.json.format(msgspec.json.encode(openapi_document()), indent=2).decode() + "\n"
