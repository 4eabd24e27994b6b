"""`doctor`: one screen that says what works, what does not, and what to do."""

from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from app import logs, vector_index
from app.cli import console
from app.services.operations import doctor as service
from app.services.operations.doctor import Finding, Patient

_MARKS = {"ok": "[green]ok[/green]", "warning": "[yellow]look[/yellow]", "failed": "[red]FAILED[/red]"}


@click.command()
@console.as_json
def doctor(as_json: bool) -> None:
    """Look at everything, and say what to do about what is wrong; exits 1 when something does not work."""
    settings = console.loaded()
    logs.configure("CRITICAL", settings.log_format)  # what fails is told below
    with console.opened(upgraded=False) as database:
        index = vector_index.of(settings, database)
        try:
            findings = list(
                service.examine(Patient(database, index, settings.data_dir, settings.resolved_database_url))
            )
        finally:
            if index is not None:
                index.close()
    has_failed = service.has_failed(findings)
    if as_json:
        shown = {"ok": not has_failed, "findings": [asdict(finding) for finding in findings]}
        console.show(shown, as_json=True, text=str)
    else:
        Console(highlight=False).print(_screen(findings))
    if has_failed:
        raise click.exceptions.Exit(1)


def _screen(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        detail = finding.detail if finding.remedy is None else f"{finding.detail}\n→ {finding.remedy}"
        table.add_row(_MARKS[finding.state], finding.what, detail.replace("[", r"\["))
    return table
