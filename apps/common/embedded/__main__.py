"""The process that stops the servers of a folder when nobody uses them any more."""

import sys
from pathlib import Path

from apps.common.embedded.keeper import watch

watch(Path(sys.argv[1]))
