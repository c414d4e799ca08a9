"""Read-only over a run: what it is doing, and what it did."""
