"""`python -m app` runs the commands, as `cmem-server` does."""

from app.cli import main

if __name__ == "__main__":
    main(prog_name="python -m app")
