"""What a run will take, before it is paid for: a few sample rollouts, and a model of the search's course. Start at ``estimate.py``."""
