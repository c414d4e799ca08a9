"""The paper's data sets from their public homes on the Hugging Face hub: the licence is shown, and must be accepted by name before a row is fetched."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import paper_splits
from gepa_lite.data import load_rows
from gepa_lite.errors import UsageError

Row = dict[str, Any]

UNSTATED = "unstated"
"""What is to be accepted where the hub states no licence."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where one file set lies.

    Attributes:
        repo: of the hub, a data set.
        files: a pattern over its files, in any case; what fits is read in the order of the names.
        licence: as commonly stated; what counts is what the hub states at the time.
        row: a row of ours from one of theirs.
    """

    repo: str
    files: str
    licence: str
    row: Callable[[Mapping[str, Any]], Row]


@dataclass(frozen=True, slots=True)
class PaperSet:
    """A data set of the paper: its homes, and its split as a function of their rows."""

    homes: tuple[Home, ...]
    split: Callable[..., paper_splits.Split]
    keep_private: bool = False


def _hotpotqa(row: Mapping[str, Any]) -> Row:
    kept = {name: row[name] for name in ("id", "question", "answer", "type", "level", "context", "supporting_facts")}
    return {**kept, "gold_titles": list(dict.fromkeys(row["supporting_facts"]["title"]))}


def _hover(row: Mapping[str, Any]) -> Row:
    titles = list(dict.fromkeys(fact["key"] for fact in row["supporting_facts"]))
    return {"claim": row["claim"], "hpqa_id": row["hpqa_id"], "num_hops": row["num_hops"], "gold_titles": titles}


def _pupa(row: Mapping[str, Any]) -> Row:
    units = list(dict.fromkeys(unit.strip() for unit in str(row["pii_units"]).split("||") if unit.strip()))
    return {"user_query": row["user_query"], "target_response": row["target_response"], "pii_units": units}


def _aime(row: Mapping[str, Any]) -> Row:
    return {"problem": row["problem"], "answer": str(row["answer"]), "solution": row.get("solution") or ""}


def _livebench(row: Mapping[str, Any]) -> Row:
    return {"question": row["turns"][0], "answer": str(row["ground_truth"]), "task": row["task"], "subtask": row["subtask"]}


PAPER_SETS: Mapping[str, PaperSet] = {
    "hotpotqa": PaperSet((Home("hotpotqa/hotpot_qa", "fullwiki/train-*.parquet", "cc-by-sa-4.0", _hotpotqa),), paper_splits.hotpotqa),
    "hover": PaperSet((Home("vincentkoc/hover-parquet", "*train-*.parquet", "cc-by-sa-4.0", _hover),), paper_splits.hover),
    "pupa": PaperSet((Home("Columbia-NLP/PUPA", "PUPA_New.csv", "mit", _pupa),), paper_splits.pupa, keep_private=True),
    "aime": PaperSet(
        (
            Home("AI-MO/aimo-validation-aime", "*train-*.parquet", "apache-2.0", _aime),
            Home("MathArena/aime_2025", "*train-*.parquet", "cc-by-nc-sa-4.0", _aime),
        ),
        paper_splits.aime,
    ),
    "livebench_math": PaperSet((Home("livebench/math", "*test-*.parquet", UNSTATED, _livebench),), paper_splits.livebench_math),
}
"""By the names of ``paper_splits``. IFBench's training file is not on the hub (it lies in the paper's own repository): give it to ``paper_splits.ifbench``."""


def stated_licences(name: str, endpoint: str | None = None) -> dict[str, str]:
    """The licence that the hub states now, by repository; ``UNSTATED`` where it states none.

    Raises:
        UsageError: no such set, ``huggingface_hub`` is not installed, or the hub can't be reached.
    """
    return {home.repo: _licence(_info(home, endpoint)) for home in _set(name).homes}


def load_paper_set(
    name: str, *, accept_licence: str | Sequence[str] = (), endpoint: str | None = None, cache: str | Path | None = None
) -> paper_splits.Split:
    """The paper's ``train``, ``val`` and ``test`` of a set, from the hub.

    Args:
        name: of ``PAPER_SETS``.
        accept_licence: the licences that you accept, by the names that the hub states, e.g. ``"cc-by-sa-4.0"``; a set of two homes has two.
        endpoint: another hub; ``HF_ENDPOINT`` or the public one where it is None.
        cache: where the files are kept; the hub client's own place where it is None.

    Returns:
        Rows as plain dicts, by split. Those of PUPA are real people's: never print them.

    Raises:
        UsageError: a licence that is not accepted, with its name; or as ``stated_licences``.
    """
    chosen = _set(name)
    accepted = {accept_licence} if isinstance(accept_licence, str) else set(accept_licence)
    infos = [(home, _info(home, endpoint)) for home in chosen.homes]
    open_ones = {home.repo: _licence(info) for home, info in infos if _licence(info) not in accepted}
    if open_ones:
        told = "; ".join(f"{repo} is under {licence!r}" for repo, licence in open_ones.items())
        wanted = ", ".join(repr(licence) for licence in dict.fromkeys(open_ones.values()))
        raise UsageError(f"{name}: {told}. Read it on the hub, and accept it by name: accept_licence={wanted}.")
    return chosen.split(*(_rows(home, info, endpoint, cache) for home, info in infos))


def _set(name: str) -> PaperSet:
    if name not in PAPER_SETS:
        hint = (
            " IFBench's training file is not on the hub: read the paper's own, and split it by paper_splits.ifbench."
            if name == "ifbench"
            else ""
        )
        raise UsageError(f"no data set {name!r} on the hub; there are {', '.join(PAPER_SETS)}.{hint}")
    return PAPER_SETS[name]


def _info(home: Home, endpoint: str | None) -> Any:
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise UsageError("to fetch data from the hub huggingface_hub is needed: pip install 'gepa-lite[hub]'.") from None
    try:
        return HfApi(endpoint=endpoint).dataset_info(home.repo, timeout=20)
    except HfHubHTTPError as error:
        raise UsageError(f"the hub has no data set {home.repo} for you: {str(error).splitlines()[0]}") from None
    except Exception as error:  # the client's HTTP library is its own affair and changes between releases
        raise UsageError(
            f"the hub can't be reached ({type(error).__name__}); set HF_ENDPOINT to a mirror, or use the local sets."
        ) from error


def _licence(info: Any) -> str:
    card = info.card_data
    stated = (card.get("license") if card is not None else None) or UNSTATED
    return "+".join(map(str, stated)) if isinstance(stated, list) else str(stated)


def _rows(home: Home, info: Any, endpoint: str | None, cache: str | Path | None) -> list[Row]:
    from huggingface_hub import hf_hub_download

    names = sorted(file.rfilename for file in info.siblings or () if fnmatch.fnmatch(file.rfilename.lower(), home.files.lower()))
    if not names:
        raise UsageError(f"{home.repo}: no file fits {home.files!r} any more.")
    rows: list[Row] = []
    for name in names:
        path = hf_hub_download(home.repo, name, repo_type="dataset", revision=info.sha, endpoint=endpoint, cache_dir=cache)
        rows += [home.row(row) for row in load_rows(path, home.repo).rows]
    return rows
