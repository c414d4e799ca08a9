"""Figures as the GEPA paper published them (arXiv 2507.19457, tables 1 and 2), to stand beside ours as published, not as ours."""

from __future__ import annotations

from collections.abc import Mapping

BENCHMARKS = ("hotpotqa", "ifbench", "hover", "pupa", "aime", "livebench_math")
"""In the tables' order."""

QWEN3_8B: Mapping[str, tuple[float, ...]] = {
    "baseline": (42.33, 36.90, 35.33, 80.82, 27.33, 48.70),
    "GRPO": (43.33, 35.88, 38.67, 86.66, 38.00, 51.26),
    "MIPROv2": (55.33, 36.22, 47.33, 81.55, 20.00, 46.60),
    "GEPA": (62.33, 38.61, 52.33, 91.85, 32.00, 51.95),
    "GEPA+Merge": (64.33, 28.23, 51.67, 86.26, 32.00, 51.95),
}
"""Test scores in per cent, by optimizer."""

GPT_41_MINI: Mapping[str, tuple[float, ...]] = {
    "baseline": (38.00, 47.79, 46.33, 78.57, 49.33, 58.20),
    "Trace (OptoPrime)": (60.33, 51.19, 46.00, 74.18, 45.33, 60.74),
    "MIPROv2 without demos": (38.00, 52.04, 51.33, 91.85, 48.67, 60.97),
    "MIPROv2": (58.00, 49.15, 48.33, 83.37, 51.33, 61.84),
    "TextGrad": (62.33, 48.64, 47.67, 85.68, 46.67, 63.84),
    "GEPA": (69.00, 52.72, 51.67, 94.47, 59.33, 64.13),
    "GEPA+Merge": (65.67, 55.95, 56.67, 96.46, 59.33, 64.13),
}

AGGREGATES: Mapping[str, Mapping[str, float]] = {
    "QWEN3_8B": {"baseline": 45.23, "GRPO": 48.91, "MIPROv2": 47.84, "GEPA": 54.85, "GEPA+Merge": 52.40},
    "GPT_41_MINI": {
        "baseline": 53.03,
        "Trace (OptoPrime)": 56.30,
        "MIPROv2 without demos": 57.14,
        "MIPROv2": 58.67,
        "TextGrad": 59.14,
        "GEPA": 65.22,
        "GEPA+Merge": 66.36,
    },
}
"""As printed. GRPO's differs from the mean of its cells, which is 48.97."""

NODES: Mapping[str, tuple[int, int]] = {
    "hotpotqa": (21, 300),
    "hover": (22, 300),
    "pupa": (20, 111),
    "ifbench": (12, 300),
    "aime": (28, 45),
    "livebench_math": (14, 121),
}
"""Candidates of the released search trees without merges, the seed included, and the size of the validation set."""
