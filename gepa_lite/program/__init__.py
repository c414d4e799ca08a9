"""Declare a program of named modules, and run it with a trace."""
