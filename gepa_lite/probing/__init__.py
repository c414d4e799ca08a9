"""Which reflection model, and which settings of the loop, refine best: tried on the same parents and minibatches."""
