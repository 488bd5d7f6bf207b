"""Runs the `gocor` command as `python -m gocor`."""

from .cli import main

if __name__ == "__main__":
    main()
