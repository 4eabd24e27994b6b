"""`serve`: migrates an embedded database, makes the first team and key, then listens."""

import socket
from typing import Final

import click
import uvicorn
from litestar import Litestar

from app.cli import console
from app.main import create_app
from app.services import bootstrap
from app.settings import Settings
from app.store import migrations, presence
from app.store.database import Database

_GRACE_SECONDS: Final = 5
"""For requests at hand and open streams; what the parts need to end is on top, and ten seconds is the promise."""

FIRST_STEPS: Final = """\
curl -s $URL/v1/memories -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\
  -d '{"projectId": "'$PROJECT'", "content": "The payment gateway waits three seconds for the bank."}'
curl -s $URL/v1/search -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\
  -d '{"projectId": "'$PROJECT'", "query": "how long does the payment gateway wait for the bank?"}'
curl -s $URL/v1/context -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\
  -d '{"projectId": "'$PROJECT'", "query": "how long does the payment gateway wait for the bank?"}'
"""
"""What a newcomer can paste; the README shows the same lines."""


@click.command()
@click.option("--host", help="Address to listen on; CMEM_HOST.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; CMEM_PORT.")
def serve(host: str | None, port: int | None) -> None:
    """Serve the API. On an empty database, first make a team, a project and a key, and print the key once."""
    settings = console.loaded()
    settings = settings.model_copy(
        update={"host": host or settings.host, "port": settings.port if port is None else port}
    )
    with console.failures_in_one_line(), presence.using(settings.resolved_database_url):
        migrations.upgrade(settings.resolved_database_url)
        listener = _listener(settings)  # before the first run: a key that cannot be announced would be lost
        app = create_app(settings)
        _announce(listener, _first_run(settings))
        _listen(app, listener, settings)


def _listen(app: Litestar, listener: socket.socket, settings: Settings) -> None:
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies or None,
    )
    uvicorn.Server(config).run(sockets=[listener])


def _first_run(settings: Settings) -> bootstrap.FirstKey | None:
    database = Database(settings.resolved_database_url)
    try:
        return bootstrap.once(database)
    finally:
        database.close()


def _listener(settings: Settings) -> socket.socket:
    """Bind before anything is announced, so that a taken port is one clear line and port 0 has a number."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as failure:
        raise click.ClickException(f"cannot listen on {settings.host}:{settings.port}: {failure.strerror}") from failure


def _announce(listener: socket.socket, first: bootstrap.FirstKey | None) -> None:
    address = _address(*listener.getsockname()[:2])
    click.echo(f"cmem-server listens on {address}, the contract is on {address}/docs")
    if first is not None:
        click.echo(
            "\nThis key is shown only now. In another terminal, write, search, and ask for context:\n\n"
            f"export URL={address} KEY={first.api_key} PROJECT={first.project_id}\n\n{FIRST_STEPS}"
        )


def _address(host: str, port: int) -> str:
    """Return an address that works on this machine, also when the server listens on all of them."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
