"""BM25 over any corpus, by ``bm25s``: what the multi-hop programs search with."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gepa_lite.errors import UsageError

Search = Callable[[str, int], Sequence[str]]
"""``search(query, k)`` gives up to k documents, best first, each as ``"title | text"``."""


class BM25:
    """A ``Search`` with the settings of GEPA's multi-hop programs: k1 0.9, b 0.4, English stop words and stemmer. Safe to call from many threads.

    Args:
        documents: texts, as ``"title | text"`` where they have a title.

    Raises:
        UsageError: no documents, or ``bm25s`` and ``PyStemmer`` are not installed (the extra ``retrieval``).

    Example:
        >>> BM25(["Fern | It likes shade.", "Cactus | It likes sun."])("shady ferns", 1)
        ['Fern | It likes shade.']
    """

    def __init__(self, documents: Iterable[str]) -> None:
        try:
            import bm25s
            import Stemmer
        except ImportError:
            raise UsageError("BM25 needs the packages bm25s and PyStemmer: pip install 'gepa-lite[retrieval]'.") from None
        logging.getLogger("bm25s").setLevel(logging.WARNING)  # it tells of every index it builds
        self._documents = list(documents)
        if not self._documents:
            raise UsageError("BM25: at least one document is needed.")
        self._stemmer = Stemmer.Stemmer("english")
        self._lock = threading.Lock()  # a stemmer keeps state while it works
        self._index = bm25s.BM25(k1=0.9, b=0.4)
        self._index.index(self._words(self._documents), show_progress=False)

    def __call__(self, query: str, k: int) -> list[str]:
        """The k documents that fit best; fewer where fewer hold a word of the query."""
        words = self._words([query])
        if not words[0]:
            return []
        with self._lock:
            places, scores = self._index.retrieve(words, k=min(k, len(self._documents)), show_progress=False)
        return [self._documents[int(place)] for place, score in zip(places[0], scores[0], strict=True) if score > 0]

    def _words(self, texts: list[str]) -> Any:
        import bm25s

        with self._lock:
            return bm25s.tokenize(texts, stopwords="en", stemmer=self._stemmer, return_ids=False, show_progress=False)

    def __getstate__(self) -> dict[str, Any]:
        # neither the lock nor the stemmer can be pickled; a worker process makes its own
        return {"_documents": self._documents}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_documents"])  # type: ignore[misc]


def title_of(document: str) -> str:
    """The title of a document ``"title | text"``.

    >>> title_of("Fern | It likes shade.")
    'Fern'
    """
    return document.split(" | ", 1)[0]
