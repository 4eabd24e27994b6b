"""A child process ends with its parent."""

import signal
import subprocess
import sys

import pytest

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.mark.parametrize(("setup", "code"), [("", -signal.SIGTERM), (STUBBORN, 1)])
def test_child_ends_when_its_standard_input_closes(setup: str, code: int):
    """By SIGTERM, or after the grace if it ignores that; until then it runs, whatever is written to it."""
    program = f"""
import sys, time
from app import parent_watchdog
{setup}
parent_watchdog.end_with_parent(grace_seconds=0.2)
print("running", flush=True)
time.sleep(60)
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout.readline() == "running\n"
        child.stdin.write("ignored\n")
        child.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=0.3)
        child.stdin.close()
        assert child.wait(timeout=10) == code
