"""Shipped prompts in the forms of other tools, verified against what was sent inside the run. Start at ``exporting.py``; ``formats.py`` is the table."""
