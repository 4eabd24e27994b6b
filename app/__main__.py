"""python -m app: hands over to the commands."""

from app.cli import main

if __name__ == "__main__":
    main(prog_name="python -m app")
