"""MLflow's prompt registry: one prompt for each module, written and read by MLflow's own client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gepa_lite.core.call import Message
from gepa_lite.errors import UsageError
from gepa_lite.exports.source import INPUTS, Reading, Source, filled, prompt_in, system_of

_SLOT = f"{{{{{INPUTS}}}}}"
_VARIABLE = re.compile(r"\{\{\s*[A-Za-z_]\w*\s*\}\}")
_FITTING = re.compile(r"[^\w.-]+")


def write_mlflow(source: Source, target: str) -> None:
    """A new version of the prompt ``Program.module`` for each module, with the verdict and the candidate as tags.

    Args:
        source: what is exported.
        target: where MLflow keeps its prompts: a tracking URI such as ``sqlite:///mlflow.db``, or a folder for a SQLite store of its own.
    """
    client = _client(target)
    data = source.prompts.data
    for module, entry in source.modules.items():
        system = system_of(entry)
        if found := _VARIABLE.search(system):
            raise UsageError(
                f"the prompt of {module!r} holds {found[0]}, which MLflow would take for a variable of its own and ask for. Use another format."
            )
        template = [{"role": "system", "content": system}, *([{"role": "user", "content": _SLOT}] if entry.get("frame") else [])]
        tags = {"gepa_lite.module": module, "gepa_lite.candidate": data["candidate"]["id"], "gepa_lite.verdict": data["verdict"]}
        client.register_prompt(
            name=_name(source, module), template=template, commit_message=f"{data['made_by']}, {data['date']}", tags=tags
        )


def read_mlflow(source: Source, target: str) -> Reading:
    """The newest version of each prompt, filled in by MLflow."""
    client = _client(target)
    versions = {
        module: client.get_prompt_version(_name(source, module), _newest(client, _name(source, module))) for module in source.modules
    }

    def messages(module: str, user: str) -> list[Message]:
        return [{"role": message["role"], "content": message["content"]} for message in versions[module].format(**{INPUTS: user})]

    texts = {
        module: prompt_in(version.template[0]["content"], source.modules[module], version.name) for module, version in versions.items()
    }
    return Reading(texts, filled(source, messages))


def _newest(client: Any, name: str) -> str:
    return str(max(int(version.version) for version in client.search_prompt_versions(name)))


def _name(source: Source, module: str) -> str:
    return _FITTING.sub("-", f"{source.prompts.data['program']}.{module}")


def _client(target: str) -> Any:
    try:
        from mlflow import MlflowClient
    except ImportError:
        raise UsageError("the mlflow format needs MLflow: pip install mlflow.") from None
    if "://" not in target:
        Path(target).mkdir(parents=True, exist_ok=True)
        target = f"sqlite:///{Path(target).absolute() / 'mlflow.db'}"
    return MlflowClient(tracking_uri=target, registry_uri=target)
