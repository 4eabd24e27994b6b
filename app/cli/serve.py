"""`serve`: migrates an embedded database, creates the first team and key, then listens."""

import socket
from functools import partial
from typing import Final

import click

from app.cli import console
from app.main import app_state, create_app, load_token_signer
from app.processes import supervisor
from app.processes.listener import listen, metrics_port
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
"""Lines that a newcomer can paste; the README shows the same."""


@click.command()
@click.option("--host", help="Address to listen on (CMEM_HOST).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (CMEM_PORT).")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes that answer requests (CMEM_WORKERS).")
def serve(host: str | None, port: int | None, workers: int | None) -> None:
    """Serve the API. On an empty database, first create a team, a project and a key, and print the key once."""
    settings = _override(host=host or None, port=port, workers=workers)
    with console.one_line_errors(), usage_lock.shared(settings.resolved_database_url):
        migrations.make_ready(settings.resolved_database_url)
        listeners = _bind(settings)  # before the first run: a key that is never announced would be lost
        if settings.workers == 1:
            _serve_in_this_process(settings, listeners[0])
        else:
            load_token_signer(settings)  # so that the workers find the generated secret
            _announce(listeners[0], _first_run(settings))
            supervisor.serve(settings, listeners)


def _serve_in_this_process(settings: Settings, listener: socket.socket) -> None:
    app = create_app(settings, telemetry=load_telemetry())
    with metrics_port(app_state(app).database, settings):
        _announce(listener, _first_run(settings))
        listen(app, listener, settings)


def _override(**options: str | int | None) -> Settings:
    """Return the settings with the options of the command line, which take precedence."""
    given = {name: value for name, value in options.items() if value is not None}
    return console.load_settings().model_copy(update=given)


def _first_run(settings: Settings) -> bootstrap.FirstKey | None:
    database = Database(settings.resolved_database_url)
    try:
        return bootstrap.run_once(database)
    finally:
        database.close()


def _bind(settings: Settings) -> list[socket.socket]:
    """Return one listening socket per worker.

    Bound before anything is announced, so that a port in use is one clear line and port 0 has a number. Sockets with
    SO_REUSEPORT would bind to a port that others share, so a first attempt without it finds out whether it is free.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bind = partial(socket.create_server, family=family, backlog=2048)
    try:
        exclusive = bind((settings.host, settings.port))
        if settings.workers == 1:
            return [exclusive]
        with exclusive:
            address = exclusive.getsockname()[:2]
        return [bind(address, reuse_port=True) for _ in range(settings.workers)]
    except OSError as failure:
        raise click.ClickException(f"Cannot listen on {settings.host}:{settings.port}: {failure.strerror}") from failure


def _announce(listener: socket.socket, first: bootstrap.FirstKey | None) -> None:
    url = _local_url(*listener.getsockname()[:2])
    click.echo(f"cmem-server is listening on {url} (API documentation: {url}/docs)")
    if first is not None:
        click.echo(
            "\nThis key is shown only once. In another terminal, write, search, and ask for context:\n\n"
            f"export URL={url} KEY={first.api_key} PROJECT={first.project_id}\n\n{FIRST_STEPS}"
        )


def _local_url(host: str, port: int) -> str:
    """Return a URL that works on this machine, also when the server listens on all addresses."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
