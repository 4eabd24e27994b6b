"""python -m tests.bench [--scale X] [NAME…]: runs benchmarks and prints their tables."""

import argparse
import importlib

from app import logs
from tests.bench.harness import table

NAMES = ("api", "auth", "keyword", "operations", "postgresql", "replicas", "vectors", "workers")


def main() -> None:
    """Run the benchmarks named, all by default."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="benchmarks to run; all by default")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the run; the targets are stated for 1.0")
    chosen = parser.parse_args()
    logs.configure("ERROR", "text")
    for name in chosen.names or NAMES:
        benchmark = importlib.import_module(f"tests.bench.{name}")
        title = (benchmark.__doc__ or name).splitlines()[0]
        print(table(title, benchmark.run(chosen.scale)), flush=True)


if __name__ == "__main__":
    main()
