"""The records that travel through a run. Frozen, free of I/O; everything else in the package is built on them."""
