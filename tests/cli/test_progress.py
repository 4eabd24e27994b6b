"""Progress bars: for a person at a terminal, and for nobody else."""

import io
import sys

import pytest

from app.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run() -> None:
    with progress.counting("copying") as advance:
        advance(3, 7)
    with progress.steps("checking") as step:
        step("pages")


def test_script_sees_no_progress(capsys: pytest.CaptureFixture[str]):
    """Neither on standard output nor on standard error."""
    run()

    assert capsys.readouterr() == ("", "")


def test_terminal_shows_progress_on_standard_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """So that a redirected standard output holds the result only."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    run()

    assert "copying" in terminal.getvalue()
    assert "pages" in terminal.getvalue()
    assert capsys.readouterr().out == ""
