"""The script that a container runs: it waits, migrates, serves, passes commands on, and stops."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.docker import FOLDER
from tests.serving import Started, started_by

pytestmark = pytest.mark.process

ENTRYPOINT = FOLDER / "entrypoint"
HEALTH_CHECK = re.search(r'HEALTHCHECK .* CMD \["python", "-c", "(.+)"\]', (FOLDER / "Dockerfile").read_text())
UNREACHABLE = "postgresql+psycopg://cmem_server:unused@127.0.0.1:1/cmem"
STOPS_WITHIN_SECONDS = 10.0


def environment(data: Path, **more: str) -> dict[str, str]:
    """Return the variables of the image, with this machine's folder and commands, and no home to write to."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CMEM_DATA_DIR": str(data),
        "CMEM_HOST": "0.0.0.0",
        "CMEM_PORT": "0",
        "CMEM_VECTORS": "off",
        **more,
    }


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script until it ends."""
    given = environment(folder / "data", **more)
    return subprocess.run(
        [ENTRYPOINT, *arguments], env=given, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@contextmanager
def container(folder: Path, *arguments: str, **more: str) -> Iterator[Started]:
    """Run the script as a container does, without arguments unless some are given."""
    with started_by([ENTRYPOINT, *arguments], environment(folder / "data", **more), folder) as started:
        yield started


def test_it_starts_migrates_serves_and_stops(tmp_path: Path):
    """The printed key works, and SIGTERM stops the server itself, cleanly and in time."""
    with container(tmp_path) as started:
        key = {"Authorization": f"Bearer {started.exported['KEY']}"}
        ready = httpx.get(f"{started.url}/readyz", trust_env=False).json()
        fact = {"projectId": started.exported["PROJECT"], "content": "a fact"}
        written = httpx.post(f"{started.url}/v1/memories", json=fact, headers=key, trust_env=False)
        command = Path(f"/proc/{started.process.pid}/cmdline").read_bytes()
        asked_at = time.monotonic()
        started.process.send_signal(signal.SIGTERM)
        code = started.process.wait(timeout=STOPS_WITHIN_SECONDS)
        took = time.monotonic() - asked_at

    assert (ready["migrations"], written.status_code) == ("ok", 201)
    assert b"cmem-server" in command
    assert b"entrypoint" not in command  # the server has replaced the shell
    assert code in (0, -signal.SIGTERM)  # 0 as PID 1 of a container, where no signal has a default action
    assert took < STOPS_WITHIN_SECONDS


def test_a_second_start_keeps_the_data_and_prints_no_key(tmp_path: Path):
    """Only the volume outlives a container."""
    with container(tmp_path) as first:
        key = {"Authorization": f"Bearer {first.exported['KEY']}"}
        fact = {"projectId": first.exported["PROJECT"], "content": "a fact"}
        httpx.post(f"{first.url}/v1/memories", json=fact, headers=key, trust_env=False).raise_for_status()

    with container(tmp_path, "serve") as second:
        kept = httpx.get(f"{second.url}/v1/memories", headers=key, trust_env=False).json()["memories"]

    assert [memory["content"] for memory in kept] == ["a fact"]
    assert "cmem_" not in second.printed


def test_the_health_check_of_the_image_detects_a_missing_server(tmp_path: Path):
    """It requests /healthz with Python, because the image has no curl."""
    assert HEALTH_CHECK
    with container(tmp_path) as started:
        given = environment(tmp_path, CMEM_PORT=started.url.rsplit(":", 1)[1], http_proxy="http://127.0.0.1:1")
        check = [sys.executable, "-c", HEALTH_CHECK.group(1)]
        healthy = subprocess.run(check, env=given, check=False).returncode
    gone = subprocess.run(check, env=given, stderr=subprocess.DEVNULL, check=False).returncode

    assert (healthy, gone) == (0, 1)


def test_other_commands_are_passed_on(tmp_path: Path):
    """With their arguments and their exit codes."""
    upgraded = run(tmp_path, "db", "upgrade")
    checked = run(tmp_path, "db", "check", "--json")
    unknown = run(tmp_path, "nonsense")

    assert (upgraded.returncode, upgraded.stdout.startswith("at revision")) == (0, True)
    assert (checked.returncode, '"ok": true' in checked.stdout) == (0, True)
    assert (unknown.returncode, "nonsense" in unknown.stderr) == (2, True)


@pytest.mark.parametrize("variable", ["CMEM_DATABASE_URL", "CMEM_DATABASE_URL_FILE"])
def test_the_wait_for_a_database_ends(tmp_path: Path, variable: str):
    """With the error of the last attempt, so that a wrong URL does not look like a slow server."""
    (tmp_path / "url").write_text(UNREACHABLE)
    value = UNREACHABLE if variable == "CMEM_DATABASE_URL" else str(tmp_path / "url")

    waited = run(tmp_path, **{variable: value, "CMEM_WAIT_SECONDS": "1"})

    assert waited.returncode == 1
    assert waited.stderr.startswith("The database did not answer within 1 seconds: Error: ")
    assert "unused" not in waited.stderr  # no password in a log


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A fake cmem-server that records its arguments; the database answers the third time."""
    program = tmp_path / "bin" / "cmem-server"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$*" >>asked\n[ "$2" != current ] || [ "$(wc -l <asked)" -ge 3 ]\n')
    program.chmod(0o755)
    return program.parent


@pytest.mark.parametrize(("migrate", "then"), [("0", ["serve"]), ("1", ["db upgrade", "serve"])])
def test_it_waits_and_migrates_only_when_asked(tmp_path: Path, stand_in: Path, migrate: str, then: list[str]):
    """Replicas leave the migration to a job; a single container does it with CMEM_MIGRATE=1."""
    path = f"{stand_in}:{os.environ['PATH']}"

    done = run(tmp_path, CMEM_DATABASE_URL=UNREACHABLE, CMEM_MIGRATE=migrate, PATH=path)

    assert done.returncode == 0
    assert (tmp_path / "asked").read_text().splitlines() == ["db current"] * 3 + then


def test_it_can_be_stopped_while_it_waits(tmp_path: Path):
    """PID 1 of a container ignores signals that it does not handle."""
    given = environment(tmp_path, CMEM_DATABASE_URL=UNREACHABLE)
    with subprocess.Popen([ENTRYPOINT], env=given, cwd=tmp_path, stderr=subprocess.DEVNULL) as waiting:
        time.sleep(0.3)
        waiting.send_signal(signal.SIGTERM)

        assert waiting.wait(timeout=STOPS_WITHIN_SECONDS) == 128 + signal.SIGTERM
