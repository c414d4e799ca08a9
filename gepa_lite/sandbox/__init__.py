"""Run code that a model wrote: walled in, bounded, and with what happened in words."""
