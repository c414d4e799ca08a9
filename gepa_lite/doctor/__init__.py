"""The doctor: a few rollouts that tell whether a run could work at all. Start at ``check.py``."""
