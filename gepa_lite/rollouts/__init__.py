"""Run one example, judge it once, fan out over an executor."""
