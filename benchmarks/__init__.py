"""What the tables of docs/performance.md are made with. Run one by `python -m benchmarks.NAME --help`."""
