"""Environment variables that torch, tokenizers and transformers read when they are imported.

Out: values for those that the user has not set. The servers (server.py) and the fork server call
set_library_variables before their first import of torch; other programs run with the user's values.
"""

from __future__ import annotations

import os


def set_library_variables() -> None:
    """Sets the variables that have no value yet."""
    # torch's threads spin at every barrier. Spinning too long (the default is milliseconds) starves the awaited thread
    # when tools and Node need the same cores: work of 3 s was not done after 40 s on two busy cores. Without spinning
    # every barrier costs a wake-up: training ran at 20,000 tokens/s then, and at 36,000 with this count.
    os.environ.setdefault("GOMP_SPINCOUNT", "100000")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Models come from directories, so no library may access the network.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
