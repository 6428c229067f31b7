"""One file per kind of run, each read from top to bottom: `run(context) -> summary`.

Nothing here calls home, and no hub is asked unless the machine's owner allows it with
`HF_HUB_OFFLINE=0`. The libraries read these settings when they are imported, hence here.
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # no thread pools before a fork
# The run's log is read line by line; a progress bar there is noise.
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
# Threads that wait for each other spin a moment, then sleep. By default they spin on, and where
# other work runs a spinning thread waits for one that cannot: steps took up to twenty times as long
# (docs/log.md). Only GNU's OpenMP reads it, which is what torch brings for processors.
os.environ.setdefault("GOMP_SPINCOUNT", "500")
