"""`serve`: migrates an embedded database, makes the first team and key, then listens."""

import socket
from functools import partial
from typing import Final

import click

from app.api.http.request import PARTS
from app.cli import console
from app.main import create_app, signing
from app.processes import supervisor
from app.processes.listener import listen, scraped
from app.services.identity import bootstrap
from app.settings import Settings, load_telemetry
from app.store import usage_lock
from app.store.database import Database
from app.store.schema import migrations

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
@click.option("--workers", type=click.IntRange(1, 64), help="Processes that answer requests; CMEM_WORKERS.")
def serve(host: str | None, port: int | None, workers: int | None) -> None:
    """Serve the API. On an empty database, first make a team, a project and a key, and print the key once."""
    settings = _chosen(host=host or None, port=port, workers=workers)
    with console.failures_in_one_line(), usage_lock.using(settings.resolved_database_url):
        migrations.make_ready(settings.resolved_database_url)
        listeners = _listeners(settings)  # before the first run: a key that cannot be announced would be lost
        if settings.workers == 1:
            _serve_alone(settings, listeners[0])
        else:
            signing(settings)  # the workers find the secret made
            _announce(listeners[0], _first_run(settings))
            supervisor.serve(settings, listeners)


def _serve_alone(settings: Settings, listener: socket.socket) -> None:
    app = create_app(settings, telemetry=load_telemetry())
    with scraped(app.state[PARTS].database, settings):
        _announce(listener, _first_run(settings))
        listen(app, listener, settings)


def _chosen(**options: str | int | None) -> Settings:
    """Return the settings, with what the command line says in their place."""
    return console.loaded().model_copy(update={name: value for name, value in options.items() if value is not None})


def _first_run(settings: Settings) -> bootstrap.FirstKey | None:
    database = Database(settings.resolved_database_url)
    try:
        return bootstrap.once(database)
    finally:
        database.close()


def _listeners(settings: Settings) -> list[socket.socket]:
    """Bind before anything is announced, so that a taken port is one clear line and port 0 has a number.

    One socket a worker. Only the first attempt, which shares the port with nobody, would find it taken.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bind = partial(socket.create_server, family=family, backlog=2048)
    try:
        alone = bind((settings.host, settings.port))
        if settings.workers == 1:
            return [alone]
        with alone:
            address = alone.getsockname()[:2]
        return [bind(address, reuse_port=True) for _ in range(settings.workers)]
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
