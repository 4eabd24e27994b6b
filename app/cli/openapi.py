"""`openapi`: writes or checks the committed contract."""

import tempfile
from pathlib import Path

import click
import msgspec

from app.api.openapi import document as contract
from app.main import create_app
from app.settings import Settings

PATH = Path("openapi/openapi.json")


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail when the file differs from the code.")
@click.option("--path", type=click.Path(dir_okay=False, path_type=Path), default=PATH, show_default=True)
def openapi(check: bool, path: Path) -> None:
    """Write the OpenAPI file from the code."""
    text = generated()
    if not check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(f"wrote {path}")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        raise click.ClickException(f"{path} differs from the code; run `python -m app openapi`")
    else:
        click.echo(f"{path} agrees with the code")


def generated() -> str:
    """Return the contract as it is committed: the same whatever the settings of this machine are."""
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(_env_file=None, data_dir=Path(folder), vectors="off"))  # type: ignore[call-arg]
        document = contract.document(app)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
