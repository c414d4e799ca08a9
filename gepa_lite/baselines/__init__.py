"""Other optimizers, on the same ledger, store, events, verdict and resume as our own search.

>>> from gepa_lite import baselines
>>> "few_shot" in baselines.OPTIMIZERS
True
"""

from gepa_lite.baselines.compare import Comparison, compare
from gepa_lite.baselines.dspy_rl import dspy_policy
from gepa_lite.baselines.optimizer import OPTIMIZERS, Optimizer, optimizer

__all__ = ["OPTIMIZERS", "Comparison", "Optimizer", "compare", "dspy_policy", "optimizer"]
