"""gepa_lite: declarative prompt programs, optimized by reflection, shipped with evidence.

``import gepa_lite as gl``; start with ``gl.Program``, ``gl.Module`` and ``gl.optimize``. Names are imported on first use, so that importing the package is cheap.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing itself costs a process that only loads prompts more than all of this package
if TYPE_CHECKING:
    from typing import Any

    from gepa_lite.adapters.adapt import apply_prompts
    from gepa_lite.adapters.dspy.program import DspyProgram
    from gepa_lite.adapters.function.wrapped import Wrapped, wrap
    from gepa_lite.adapters.recording.proxy import Proxy, proxy
    from gepa_lite.adapters.recording.scope import attribute_to
    from gepa_lite.adapters.recording.spans import Spans, spans
    from gepa_lite.aftercare.bundle_diff import BundleDiff, diff_bundles
    from gepa_lite.aftercare.recheck import Recheck, recheck
    from gepa_lite.api import Evaluation, evaluate, optimize
    from gepa_lite.baselines.compare import compare
    from gepa_lite.bundle import LivePrompts, Prompts, load_prompts
    from gepa_lite.core.budget import Budget
    from gepa_lite.core.call import Call, Trace, Usage
    from gepa_lite.core.contract import Contract
    from gepa_lite.core.example import Example
    from gepa_lite.core.feedback import Feedback, Objective
    from gepa_lite.doctor.check import Effort, check
    from gepa_lite.doctor.checkup import Checkup
    from gepa_lite.errors import GepaLiteError, ModelError, RolloutError, RunError, UsageError
    from gepa_lite.executors.workers import Workers
    from gepa_lite.exports.exporting import Exported, export
    from gepa_lite.exports.folder import import_prompts
    from gepa_lite.exports.verify import UnfaithfulExportError
    from gepa_lite.forecast.estimate import Estimate, estimate
    from gepa_lite.guard.options import Guard
    from gepa_lite.insight.advice import Advice
    from gepa_lite.insight.measures import Measures, measures
    from gepa_lite.insight.transitions import TransitionRecord, transitions
    from gepa_lite.lm.callable_lm import CallableLM
    from gepa_lite.lm.litellm_client import LiteLLM
    from gepa_lite.lm.protocol import LM, Completion, LMInfo, Params, Request
    from gepa_lite.mutator.settings import Tuning
    from gepa_lite.mutator.training import TrainedMutator, train_mutator
    from gepa_lite.probing.outcome import ProbeResult
    from gepa_lite.probing.probe import probe
    from gepa_lite.program.chat import ChatModel
    from gepa_lite.program.code import Code
    from gepa_lite.program.module import Module
    from gepa_lite.program.outputs import Outputs
    from gepa_lite.program.program import Program
    from gepa_lite.program.recorder import carry
    from gepa_lite.program.signature import Signature
    from gepa_lite.prompt_files.reading import PromptFiles, prompts_from
    from gepa_lite.prompting import prompt, use_prompts
    from gepa_lite.report.html import report_html
    from gepa_lite.report.markdown import report_markdown
    from gepa_lite.report.plots import plot
    from gepa_lite.search.reflect import ReflectionLimits
    from gepa_lite.search.search import Search
    from gepa_lite.ship.registry import Registry
    from gepa_lite.ship.result import Result
    from gepa_lite.ship.write_back import WrittenBack, write_back
    from gepa_lite.splitting import Splits, split
    from gepa_lite.store.purge import Purged, purge
    from gepa_lite.trackers.mlflow_tracker import MLflowTracker
    from gepa_lite.trackers.opentelemetry_tracker import OpenTelemetryTracker
    from gepa_lite.trackers.wandb_tracker import WandbTracker

_HOMES = {
    "Advice": "insight.advice",
    "Budget": "core.budget",
    "BundleDiff": "aftercare.bundle_diff",
    "Call": "core.call",
    "CallableLM": "lm.callable_lm",
    "ChatModel": "program.chat",
    "Checkup": "doctor.checkup",
    "Code": "program.code",
    "Completion": "lm.protocol",
    "Contract": "core.contract",
    "DspyProgram": "adapters.dspy.program",
    "Effort": "doctor.check",
    "Estimate": "forecast.estimate",
    "Evaluation": "api",
    "Example": "core.example",
    "Exported": "exports.exporting",
    "Feedback": "core.feedback",
    "GepaLiteError": "errors",
    "Guard": "guard.options",
    "LM": "lm.protocol",
    "LMInfo": "lm.protocol",
    "LiteLLM": "lm.litellm_client",
    "LivePrompts": "bundle",
    "MLflowTracker": "trackers.mlflow_tracker",
    "Measures": "insight.measures",
    "ModelError": "errors",
    "Module": "program.module",
    "Objective": "core.feedback",
    "OpenTelemetryTracker": "trackers.opentelemetry_tracker",
    "Outputs": "program.outputs",
    "Params": "lm.protocol",
    "ProbeResult": "probing.outcome",
    "Program": "program.program",
    "PromptFiles": "prompt_files.reading",
    "Prompts": "bundle",
    "Proxy": "adapters.recording.proxy",
    "Purged": "store.purge",
    "Recheck": "aftercare.recheck",
    "ReflectionLimits": "search.reflect",
    "Registry": "ship.registry",
    "Request": "lm.protocol",
    "Result": "ship.result",
    "RolloutError": "errors",
    "RunError": "errors",
    "Search": "search.search",
    "Signature": "program.signature",
    "Spans": "adapters.recording.spans",
    "Splits": "splitting",
    "Trace": "core.call",
    "TrainedMutator": "mutator.training",
    "TransitionRecord": "insight.transitions",
    "Tuning": "mutator.settings",
    "UnfaithfulExportError": "exports.verify",
    "Usage": "core.call",
    "UsageError": "errors",
    "WandbTracker": "trackers.wandb_tracker",
    "Workers": "executors.workers",
    "Wrapped": "adapters.function.wrapped",
    "WrittenBack": "ship.write_back",
    "apply_prompts": "adapters.adapt",
    "attribute_to": "adapters.recording.scope",
    "carry": "program.recorder",
    "check": "doctor.check",
    "compare": "baselines.compare",
    "diff_bundles": "aftercare.bundle_diff",
    "estimate": "forecast.estimate",
    "evaluate": "api",
    "export": "exports.exporting",
    "import_prompts": "exports.folder",
    "load_prompts": "bundle",
    "measures": "insight.measures",
    "optimize": "api",
    "plot": "report.plots",
    "probe": "probing.probe",
    "prompt": "prompting",
    "prompts_from": "prompt_files.reading",
    "proxy": "adapters.recording.proxy",
    "purge": "store.purge",
    "recheck": "aftercare.recheck",
    "report_html": "report.html",
    "report_markdown": "report.markdown",
    "spans": "adapters.recording.spans",
    "split": "splitting",
    "train_mutator": "mutator.training",
    "transitions": "insight.transitions",
    "use_prompts": "prompting",
    "wrap": "adapters.function.wrapped",
    "write_back": "ship.write_back",
}

__all__ = [
    "LM",
    "Advice",
    "Budget",
    "BundleDiff",
    "Call",
    "CallableLM",
    "ChatModel",
    "Checkup",
    "Code",
    "Completion",
    "Contract",
    "DspyProgram",
    "Effort",
    "Estimate",
    "Evaluation",
    "Example",
    "Exported",
    "Feedback",
    "GepaLiteError",
    "Guard",
    "LMInfo",
    "LiteLLM",
    "LivePrompts",
    "MLflowTracker",
    "Measures",
    "ModelError",
    "Module",
    "Objective",
    "OpenTelemetryTracker",
    "Outputs",
    "Params",
    "ProbeResult",
    "Program",
    "PromptFiles",
    "Prompts",
    "Proxy",
    "Purged",
    "Recheck",
    "ReflectionLimits",
    "Registry",
    "Request",
    "Result",
    "RolloutError",
    "RunError",
    "Search",
    "Signature",
    "Spans",
    "Splits",
    "Trace",
    "TrainedMutator",
    "TransitionRecord",
    "Tuning",
    "UnfaithfulExportError",
    "Usage",
    "UsageError",
    "WandbTracker",
    "Workers",
    "Wrapped",
    "WrittenBack",
    "apply_prompts",
    "attribute_to",
    "carry",
    "check",
    "compare",
    "diff_bundles",
    "estimate",
    "evaluate",
    "export",
    "import_prompts",
    "load_prompts",
    "measures",
    "optimize",
    "plot",
    "probe",
    "prompt",
    "prompts_from",
    "proxy",
    "purge",
    "recheck",
    "report_html",
    "report_markdown",
    "spans",
    "split",
    "train_mutator",
    "transitions",
    "use_prompts",
    "wrap",
    "write_back",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gepa_lite' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"gepa_lite.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
