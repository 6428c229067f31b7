"""How the supervisor tells its trainer a wish: a small file, replaced whole, in the run's folder.

A signal says that there is something to read; the file says what. Ranks below `torchrun` get no
signal and look for the file now and then.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from workers.contract.events import Failed
from workers.contract.wire import ContractError, build

CONTROL_FILE = "control"
STOP, CANCEL = "stop", "cancel"


@dataclass(frozen=True, slots=True)
class Wish:
    """`stop`: save, keep, finish early; `cancel`: end without saving.

    With `outcome`, a trainer that stopped reports that failure instead of Finished: the wish was
    the supervisor's own (time limit, lost lease, a worker that shuts down), nobody's success.
    """

    word: str
    outcome: Failed | None = None


def wish_write(path: Path, wish: Wish) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(asdict(wish)))
    part.replace(path)


def wish_read(path: Path) -> Wish | None:
    """None when there is no wish, or nothing that can be read as one."""
    try:
        data = json.loads(path.read_text())
        wish = build(Wish, data, where="control")
        if wish.outcome is not None:
            wish = Wish(wish.word, build(Failed, wish.outcome, where="control.outcome"))
    except (FileNotFoundError, ValueError, ContractError):
        return None
    return wish if wish.word in (STOP, CANCEL) else None
