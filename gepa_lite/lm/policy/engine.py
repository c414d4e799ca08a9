"""One open model on PyTorch: loaded once, asked in batches, with at most one LoRA adapter on it at a time."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from gepa_lite.errors import UsageError
from gepa_lite.lm.policy.draws import Draw, Sample, sample
from gepa_lite.lm.policy.home import Home, quiet

BASE = "base"
"""The model without an adapter."""
_PAUSE = 0.01
"""Seconds in which a further call must come for a batch to wait for more."""
_WEIGHTS, _CARD = "adapter.safetensors", "policy.json"


def need(*modules: str) -> None:
    """Refuse to go on without the extra ``rl``.

    Raises:
        UsageError: says what to install.
    """
    for module in modules or ("torch", "transformers", "peft", "trl", "datasets", "gguf"):
        try:
            import_module(module)
        except ImportError as error:
            raise UsageError(f"models in training need the package {module}: pip install 'gepa-lite[rl]'.") from error


@dataclass(frozen=True)
class Lora:
    """The adapter's shape; the defaults are the paper's (arXiv 2507.19457).

    Attributes:
        rank: of its matrices.
        alpha: its weight is ``alpha / rank``.
        dropout: in training.
        targets: names of the linear layers that get one.
    """

    rank: int = 16
    alpha: int = 64
    dropout: float = 0.05
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj")


class Engine:
    """A model and its tokenizer. ``ask`` may be called from many threads: what waits at the same time is sampled in one batch.

    Args:
        base: a name of the catalogue of local models, the path of a ``.gguf`` file, or a folder (or hub name) of ``transformers``.
        batch: replies that are sampled at once. With 1 a reply never depends on what runs beside it, not even by rounding.
    """

    def __init__(self, base: str, batch: int = 32) -> None:
        self.base, self.batch = base, batch
        self.model: Any = None
        self.tokenizer: Any = None
        self.lora: Lora | None = None
        self.adapter = BASE
        self.training: str | None = None
        """The adapter in training, by a hash of its weights as they are; None where none is trained."""
        self.sampler: Callable[[Sequence[Draw]], list[Sample]] | None = None
        """Samples in place of the model with the adapter in training; None for the model itself."""
        self._lock = threading.RLock()
        self._queue: list[tuple[str, Path | None, Draw, _Answer]] = []
        self._turn = threading.Condition()
        self._serving = False
        self._encoding = threading.Lock()
        self._window: int | None = None
        self._aside: Mapping[str, Any] = {}

    def open_tokenizer(self) -> None:
        """Load the tokenizer, once, and not the weights: enough for ``encode`` and ``decode``.

        Raises:
            UsageError: the extra is missing, or there is no such model.
        """
        # not the lock that is held while replies are sampled
        with self._encoding:
            if self.tokenizer is not None:
                return
            need("torch", "transformers", "gguf")
            tokenizer = self._read("AutoTokenizer", padding_side="left")
            if tokenizer.pad_token_id is None:
                tokenizer.pad_token = tokenizer.eos_token
            self.tokenizer = tokenizer

    def load(self) -> None:
        """Load the weights, once.

        Raises:
            UsageError: the extra is missing, or there is no such model.
        """
        with self._lock:
            if self.model is not None:
                return
            self.open_tokenizer()
            torch = import_module("torch")
            # a copy that is kept serves machines with a GPU and without one
            model = self._read("AutoModelForCausalLM", dtype=torch.float32 if self._home.unpacks else _dtype())
            # dequantized weights are plain ones; what says otherwise keeps transformers from training and saving them
            model.hf_quantizer, model.is_quantized = None, False
            if hasattr(model.config, "quantization_config"):
                del model.config.quantization_config
            self._home.keep(model, self.tokenizer)
            for parameter in model.parameters():
                parameter.data = parameter.data.to(_dtype())
            self.model = model.to("cuda") if torch.cuda.is_available() else model
            self.model.eval()

    @functools.cached_property
    def _home(self) -> Home:
        return Home(self.base)

    def _read(self, kind: str, **options: Any) -> Any:
        where, place = self._home.place()
        try:
            with quiet():
                return getattr(import_module("transformers"), kind).from_pretrained(where, **place, **options)
        except (OSError, ValueError) as error:
            raise UsageError(f"the model {self.base!r} can't be loaded: {error}") from error

    def shape(self, lora: Lora, seed: int) -> None:
        """Put an adapter on the model, one that changes nothing yet. One of the same shape is drawn anew.

        Args:
            lora: its shape.
            seed: of its random half.

        Raises:
            UsageError: the extra is missing, or another adapter is in training.
        """
        self.load()
        need("peft")
        if self.training is not None:
            raise UsageError(
                f"the adapter {self.training} of {self.base} is in training, and one of another shape can't take its place: "
                "let modules and judges use the model itself or adapters of the same Training(lora=), or another base."
            )
        peft, torch = import_module("peft"), import_module("torch")
        with self._lock:
            if hasattr(self.model, "peft_config"):
                self.model = self.model.unload()
                if hasattr(self.model, "peft_config"):
                    del self.model.peft_config
            torch.manual_seed(seed)
            config = peft.LoraConfig(
                r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=list(lora.targets), task_type="CAUSAL_LM"
            )
            self.model = peft.get_peft_model(self.model, config)
            self.model.eval()
            self.lora = lora
            self.adapter = self.now()

    def state(self) -> Mapping[str, Any]:
        """The adapter's tensors by name, copied to the CPU."""
        found = import_module("peft").get_peft_model_state_dict(self.model, adapter_name="default")
        return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in sorted(found.items())}

    def now(self) -> str:
        """A hash of the adapter as it is."""
        digest = hashlib.sha256(json.dumps(self._lora()).encode())
        for name, tensor in self.state().items():
            digest.update(name.encode())
            digest.update(tensor.float().numpy().tobytes())
        return digest.hexdigest()[:16]

    def mark(self) -> None:
        """Say that the adapter on the model is in training, its weights as they are now: where others are asked for meanwhile, they are kept, and ``use`` brings them back."""
        self.adapter = self.training = self.now()

    def unmark(self) -> None:
        """End the training with its last weights on the model."""
        if self.training is not None:
            self.use(self.training, None)
            self.training, self._aside = None, {}

    def _lora(self) -> dict[str, Any]:
        assert self.lora is not None
        return asdict(self.lora)

    def save(self, folder: Path) -> None:
        """Write the adapter as it is, with what names its base: a folder that ``policy/`` opens. The card comes last, so that a folder with one is whole."""
        folder.mkdir(parents=True, exist_ok=True)
        card = {"base": self.base, "adapter": self.now(), "lora": self._lora()}
        whole = {name: folder / f"{name}.part" for name in (_WEIGHTS, _CARD)}
        import_module("safetensors.torch").save_file(dict(self.state()), whole[_WEIGHTS])
        whole[_CARD].write_text(json.dumps(card, indent=2) + "\n")
        for name, path in whole.items():
            path.replace(folder / name)

    def use(self, adapter: str, folder: Path | None) -> None:
        """Bring an adapter onto the model.

        Args:
            adapter: its hash, or ``BASE``.
            folder: where ``save`` wrote it; None for ``BASE``, for the one that is on the model and for the one in training.

        Raises:
            UsageError: the folder holds another one, or one of another base.
        """
        with self._lock:
            self.load()
            if adapter == self.adapter:
                return
            if self.adapter == self.training:
                self._aside = self.state()
            if adapter == self.training:
                self._put(self._aside)
                self.adapter = adapter
                return
            if adapter == BASE:
                for name, parameter in self.model.named_parameters():
                    if ".lora_B.default" in name:
                        parameter.data.zero_()
                self.adapter = BASE
                return
            if folder is None:
                raise UsageError(f"the adapter {adapter} is not on the model any more, and was not kept.")
            card = read_card(folder)
            if card["base"] != self.base or card["adapter"] != adapter:
                raise UsageError(f"{folder} holds the adapter {card['adapter']} of {card['base']}; {adapter} of {self.base} is needed.")
            lora = Lora(**{**card["lora"], "targets": tuple(card["lora"]["targets"])})
            if self.lora != lora or not hasattr(self.model, "peft_config"):
                self.shape(lora, 0)
            self._put(import_module("safetensors.torch").load_file(folder / _WEIGHTS))
            self.adapter = adapter

    def _put(self, tensors: Mapping[str, Any]) -> None:
        import_module("peft").set_peft_model_state_dict(self.model, dict(tensors), adapter_name="default")

    def encode(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Messages as the tokens that the model's own chat template makes of them."""
        self.open_tokenizer()
        with self._encoding:
            found = self.tokenizer.apply_chat_template(
                list(map(dict, messages)), add_generation_prompt=True, tokenize=True, return_dict=True
            )
        return tuple(found["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without the special ones."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end a reply."""
        ends = self.model.generation_config.eos_token_id
        found = list(ends) if isinstance(ends, (list, tuple)) else [] if ends is None else [ends]
        return tuple(dict.fromkeys([*found, self.tokenizer.eos_token_id]))

    @property
    def window(self) -> int:
        """Tokens of prompt and reply together; needs no weights."""
        with self._encoding:
            if self._window is None:
                # a GGUF file is read through for it: once
                config = self._read("AutoConfig") if self.model is None else self.model.config
                self._window = int(getattr(config, "max_position_embeddings", 1 << 30))
            return self._window

    def ask(self, adapter: str, folder: Path | None, draw: Draw) -> Sample:
        """Sample one reply. One thread at a time samples, its own and what others wait for; those that have their reply never wait for the next batch."""
        answer = _Answer()
        with self._turn:
            self._queue.append((adapter, folder, draw, answer))
        while True:
            with self._turn:
                self._turn.wait_for(lambda: answer.done or not self._serving)
                if answer.done:
                    return answer.result()
                self._serving = True
            try:
                self._gather()
                with self._lock:
                    self._serve()
            finally:
                with self._turn:
                    self._serving = False
                    self._turn.notify_all()

    def _gather(self) -> None:
        """Wait while more come: a batch takes little longer than a single reply."""
        seen = 0
        while seen < (now := len(self._queue)) < self.batch:
            seen = now
            time.sleep(_PAUSE)

    def _serve(self) -> None:
        with self._turn:
            chosen = [item for item in self._queue if item[0] == self._queue[0][0]][: self.batch]
            self._queue = [item for item in self._queue if all(item is not taken for taken in chosen)]
        try:
            self.use(chosen[0][0], chosen[0][1])
            draws = [draw for _, _, draw, _ in chosen]
            training = self.model.training
            self.model.eval()
            try:
                # it has the weights in training alone
                sampler = self.sampler if self.adapter == self.training else None
                found = (sampler or self.sample)(draws)
            finally:
                self.model.train(training)
        except Exception as error:
            for *_, answer in chosen:
                answer.fail(error)
        else:
            for (*_, answer), each in zip(chosen, found, strict=True):
                answer.give(each)

    def sample(self, draws: Sequence[Draw]) -> list[Sample]:
        """Sample replies by the model as it is."""
        return sample(self.model, draws, self.ends, self.tokenizer.pad_token_id)


class _Answer:
    """What one thread waits for; written by the thread that samples, read under the condition that it then notifies."""

    def __init__(self) -> None:
        self._sample: Sample | None = None
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        return self._sample is not None or self._error is not None

    def give(self, found: Sample) -> None:
        self._sample = found

    def fail(self, error: Exception) -> None:
        self._error = error

    def result(self) -> Sample:
        if self._error is not None:
            raise self._error
        assert self._sample is not None
        return self._sample


def read_card(folder: Path) -> dict[str, Any]:
    """What an adapter's folder says of it.

    Raises:
        UsageError: it is no such folder.
    """
    try:
        card = json.loads((folder / _CARD).read_text())
        return {"base": str(card["base"]), "adapter": str(card["adapter"]), "lora": dict(card["lora"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder} is no folder of an adapter: {_CARD} in it can't be read ({error}).") from error


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter that was written to its end."""
    return (folder / _CARD).exists()


@functools.cache
def engine_of(base: str, batch: int = 32) -> Engine:
    """The engine of a model, the same one each time in a process."""
    return Engine(base, batch)


def _dtype() -> Any:
    torch = import_module("torch")
    return torch.bfloat16 if torch.cuda.is_available() else torch.float32
