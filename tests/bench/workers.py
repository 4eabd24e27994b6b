"""Two worker processes compared with one, on the same database: the gain from a second core."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import load
from tests.bench.api import filled, some_ids
from tests.bench.harness import Row, Running, serving

_CONNECTIONS = 16
_ROUNDS = 15
_QUIET_ENOUGH = 0.2
_LOOP = """
import time
count, end = 0, time.perf_counter() + 0.2
while time.perf_counter() < end:
    count += 1
print(count)
"""
_TICKS = os.sysconf("SC_CLK_TCK")


def run(scale: float) -> list[Row]:
    """Measure at `scale`; the targets are stated for 1.0."""
    requests = max(200, int(3_000 * scale))
    with tempfile.TemporaryDirectory() as folder:
        store = filled(Path(folder) / "data", max(50, int(1_000 * scale)))
        gets = [load.request("GET", f"/v1/memories/{each}", key=store.api_key) for each in some_ids(store, 200)]
        with serving(store.folder) as one, serving(store.folder, CMEM_WORKERS="2") as two:
            for server in (one, two):
                load.run(server.url, gets, count=requests, connections=_CONNECTIONS)
            rounds, loops = [], []
            for _ in range(_ROUNDS):
                rounds.append((_round(one, gets, requests), _round(two, gets, requests)))
                loops.append(_loops(2) / _loops(1))
    empty_loops = Row("  two empty loops, meanwhile", "two", "one", statistics.median(loops), "–")
    return [*_rows(rounds), empty_loops]


@dataclass(frozen=True)
class _Round:
    """One run of requests; `sending` and `others` are the cores that the load generator and other programs used.

    They are not available to the server: with one worker there is a core to spare for them, with two there is none.
    """

    per_second: float
    failures: int
    sending: float
    others: float


def _round(server: Running, gets: list[bytes], requests: int) -> _Round:
    started, sending, serving, used_by_all = time.perf_counter(), time.process_time(), _used_by(server), _used_by_all()
    done = load.run(server.url, gets, count=requests, connections=_CONNECTIONS)
    seconds, sending = time.perf_counter() - started, time.process_time() - sending
    others = _used_by_all() - used_by_all - (_used_by(server) - serving) - sending
    return _Round(done.per_second, done.failures, sending / seconds, max(0.0, others / seconds))


def _used_by(server: Running) -> float:
    """Return the CPU seconds of a server and its workers."""
    seconds = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" (")
        except OSError:  # the process has ended
            continue
        fields = rest.rpartition(")")[2].split()
        if server.process.pid in (int(pid), int(fields[1])):
            seconds += (int(fields[11]) + int(fields[12])) / _TICKS
    return seconds


def _used_by_all() -> float:
    user, nice, system, _, _, interrupts, soft, *_ = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(map(int, (user, nice, system, interrupts, soft))) / _TICKS


def _loops(processes: int) -> float:
    """Return how many iterations parallel empty loops complete: the upper limit on this machine."""
    running = [subprocess.Popen([sys.executable, "-c", _LOOP], stdout=subprocess.PIPE) for _ in range(processes)]
    return sum(int(each.communicate()[0]) for each in running)


def _rows(rounds: Sequence[tuple[_Round, _Round]]) -> list[Row]:
    quiet = [pair for pair in rounds if max(each.others for each in pair) <= _QUIET_ENOUGH]
    chosen = quiet if len(quiet) >= 3 else rounds
    ones, twos = zip(*chosen, strict=True)
    ratio = statistics.median(two.per_second / one.per_second for one, two in chosen)
    one, two = (statistics.median(each.per_second for each in side) for side in (ones, twos))
    failures = sum(each.failures for pair in rounds for each in pair)
    return [
        Row(
            f"GET one memory, two workers, {os.cpu_count()} cores",
            f"{two:,.0f}/s",
            f"one {one:,.0f}/s",
            ratio,
            "≥ 1.5",
        ),
        _cores("  cores that sending took", [each.sending for each in ones], [each.sending for each in twos]),
        _cores("  cores that other programs took", [each.others for each in ones], [each.others for each in twos]),
        Row("  quiet rounds", str(len(quiet)), f"of {len(rounds)}", len(quiet) / len(rounds), "–"),
        Row("failed requests", str(failures), "0", float(failures), "0"),
    ]


def _cores(what: str, with_one: Sequence[float], with_two: Sequence[float]) -> Row:
    one, two = statistics.median(with_one), statistics.median(with_two)
    return Row(what, f"{two:.2f}", f"one {one:.2f}", two / one if one else 1.0, "–")
