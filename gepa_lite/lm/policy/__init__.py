"""An open model in this process, on PyTorch, that can be trained: ``policy/NAME`` (extra ``rl``).

>>> from gepa_lite.lm.policy import open_policy
>>> open_policy("smollm2-135m").describe().name
'policy/smollm2-135m'
"""

from gepa_lite.lm.policy.draws import Draw, Sample, logprobs_of
from gepa_lite.lm.policy.engine import Engine, Lora, engine_of, need
from gepa_lite.lm.policy.lm import PolicyLM, open_policy

__all__ = ["Draw", "Engine", "Lora", "PolicyLM", "Sample", "engine_of", "logprobs_of", "need", "open_policy"]
