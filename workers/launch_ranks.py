"""Runs a launcher of ranks, and says afterwards how each rank ended:

    python -m workers.launch_ranks FOLDER SILENCE_S MODULE ARGUMENTS…

MODULE is `torch.distributed.run` or `accelerate.commands.launch`. A launcher knows with which
status or by which signal each rank ended, and in which order it saw that; it prints it for people
and forgets it. Here it becomes `FOLDER/ranks.json`, a list in that order of

    {"rank": 1, "status": -9, "pid": 4711, "at": 1790000000}

where a negative status is a signal. This process also holds the supervisor's lifeline, silence
included, for all ranks: they hear of its end by the end of the standard input they got from it.
"""

import json
import runpy
import sys
from pathlib import Path

from workers import control
from workers.rank_ends import RANKS_FILE


def main(argv: list[str]) -> None:
    folder, silence_s, module, *arguments = argv
    control.hold(float(silence_s), descriptor=control.lend_standard_input())
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except ChildFailedError as error:
        ended = [
            {"rank": rank, "status": one.exitcode, "pid": one.pid, "at": one.timestamp}
            for rank, one in error.failures.items()
        ]
        (Path(folder) / RANKS_FILE).write_text(json.dumps(ended))
        sys.exit(1)  # the traceback of a launcher whose ranks failed tells nothing


if __name__ == "__main__":
    main(sys.argv[1:])
