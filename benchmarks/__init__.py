"""Benchmarks that anyone can rerun: ``python -m benchmarks NAME``. Never installed. Each module here has ``run(options) -> Report``."""
