"""`doctor`: one screen that says what works, what does not, and how to fix it."""

from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from app import logs, vector_index
from app.cli import console
from app.services.operations import doctor as service
from app.services.operations.doctor import DoctorContext
from app.settings import Settings
from app.store.maintenance.checks import CheckResult

_MARKS = {"ok": "[green]ok[/green]", "warning": "[yellow]warning[/yellow]", "failed": "[red]FAILED[/red]"}


@click.command()
@console.as_json
def doctor(as_json: bool) -> None:
    """Check the installation and suggest fixes. Exits 1 when something does not work."""
    settings = console.load_settings()
    logs.configure("CRITICAL", settings.log_format)  # failures are reported below
    missing = console.missing_database(settings)  # then nothing else is checked: it would create the folder
    results = _run_checks(settings) if missing is None else [CheckResult("database", "failed", *missing)]
    has_failed = service.has_failed(results)
    if as_json:
        reply = {"ok": not has_failed, "findings": [asdict(result) for result in results]}
        console.show(reply, as_json=True, text=str)
    else:
        Console(highlight=False).print(_screen(results))
    if has_failed:
        raise click.exceptions.Exit(1)


def _run_checks(settings: Settings) -> list[CheckResult]:
    with console.open_database(migrate=False) as database:
        index = vector_index.of(settings, database)
        try:
            context = DoctorContext(database, index, settings.data_dir, settings.resolved_database_url)
            return list(service.run_checks(context))
        finally:
            if index is not None:
                index.close()


def _screen(results: list[CheckResult]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for result in results:
        detail = result.detail if result.remedy is None else f"{result.detail}\n→ {result.remedy}"
        table.add_row(_MARKS[result.state], result.what, detail.replace("[", r"\["))
    return table
