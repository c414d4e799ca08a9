"""A run on disk: one SQLite file, ``run.db``, in a folder of its own (design decision 12).

It holds the journal of events, rollouts, completions (the cache), the ledger of paid calls, the examples and the sessions.
``protocol`` is the interface, ``run_store`` the file, ``memory`` the same without a file, for simulations; ``folders`` says where
runs live. The store writes what it is handed and nothing else, so no key or secret reaches it.
"""

from gepa_lite.store.folders import find_run, list_runs, run_folder
from gepa_lite.store.memory import MemoryStore
from gepa_lite.store.paid import Paid
from gepa_lite.store.protocol import Store
from gepa_lite.store.run_store import RunStore

__all__ = ["MemoryStore", "Paid", "RunStore", "Store", "find_run", "list_runs", "run_folder"]
