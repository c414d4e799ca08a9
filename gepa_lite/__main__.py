"""``python -m gepa_lite``: the same as ``gepa-lite``."""

from gepa_lite.cli import main

if __name__ == "__main__":
    main()
