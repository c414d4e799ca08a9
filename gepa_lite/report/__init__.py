"""Pages about a run: one self-contained file, and the parts that the live pages share with it."""
