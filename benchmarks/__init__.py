"""The studies behind docs/performance.md. `python -m benchmarks.NAME --help` lists the options of one."""
