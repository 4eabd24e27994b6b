"""A worker of a server with a slow clock."""

import runpy

from tests.processes import slow_clock

if __name__ == "__main__":
    slow_clock.in_worker()
    runpy.run_module("app.processes.worker", run_name="__main__")
