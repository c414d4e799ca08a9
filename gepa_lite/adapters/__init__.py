"""Bring your own program: what makes a ``gl.Program``, a dspy program and others fit ``program.optimizable.Optimizable``."""
