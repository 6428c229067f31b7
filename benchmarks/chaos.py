"""An hour of faults: every part killed, stopped, cut off and out of disk while 32 people vote.

The drill that `make test-system` plays for five minutes (`tests/system/drill_chaos.py`): how long
each part takes to be well again after each fault, and that no vote and no step is lost or doubled.

Run: make bench B="chaos [--seconds 3600] [--seed 1]"
"""

import sys

from tests.system import drill_chaos


def main() -> None:
    drill_chaos.main(["--seconds", "3600", *sys.argv[1:]])


if __name__ == "__main__":
    main()
