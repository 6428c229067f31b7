"""`python -m workers.start PART`: one program of a training machine, as a service runs it.

The start lines stand here once: `manage.py up`, the images, compose.yml and the systemd units all
use them. Standard library only: nothing is loaded before the program takes this process over.
"""

import argparse
import os
import sys
from pathlib import Path

from workers.machine import gpus

FILE = "_FILE"
PARTS = ("train", "short", "scorer", "answerer")


class BadSecretFile(SystemExit):
    """A variable NAME_FILE whose file cannot be read; the text names both."""


def read_secret_files() -> None:
    """Give each variable whose NAME_FILE names a file the file's content, without the line's end.

    Services get secrets as files, so that they stand in no configuration. A variable that is set
    itself wins. NAME_FILE is taken away, so that what reads a variable of that name by itself (a
    library) is left as it is where both are set.
    """
    for name in [name for name in os.environ if name.endswith(FILE)]:
        variable = name.removesuffix(FILE)
        if variable not in SECRETS or not os.environ[name]:
            continue
        path = os.environ.pop(name)
        try:
            content = Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadSecretFile(f"{name}={path}: cannot be read ({error})") from None
        os.environ.setdefault(variable, content)


# Of other variables NAME_FILE has a meaning of its own (SSL_CERT_FILE, AWS_CONFIG_FILE).
SECRETS = frozenset(
    {
        *("SECRET_KEY", "SECRET_KEY_FALLBACKS"),
        *("DATABASE_URL", "DATABASE_OWNER_URL", "DATABASE_DIRECT_URL"),
        *("REDIS_URL", "CACHE_URL", "SCORE_CACHE_URL", "EMAIL_URL", "METRICS_TOKEN"),
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "OIDC_CLIENT_SECRET"),
        "SCIM_TOKEN",
        *("REWARD_TOKEN", "INFERENCE_TOKEN", "HF_TOKEN", "WANDB_API_KEY"),
    }
)


def celery(app: str, *words: str) -> tuple[str, ...]:
    """argv of a Celery program; how much it logs is LOG_LEVEL (workers/logs.py)."""
    return (sys.executable, "-m", "celery", "-A", app, *words)


def celery_worker(app: str, name: str, queues: str) -> tuple[str, ...]:
    """argv of a Celery worker with one process for its tasks."""
    return celery(
        app,
        *("worker", "-n", f"{name}@%h", "-Q", queues, "-P", "prefork", "-c", "1"),
        *("--without-gossip", "--without-mingle"),
    )


def argv(part: str, *, queues: str = "") -> tuple[str, ...]:
    """part: one of `PARTS`. queues: those of `train`, by default `gpu,cpu`, or `cpu` alone where
    there is no GPU: what waits for one is not run without one."""
    if part == "train":
        queues = queues or ("gpu,cpu" if gpus() else "cpu")
        return celery_worker("workers.celery", "train", queues)
    if part == "short":
        return celery_worker("workers.celery", "short", "short")
    # No Celery: a task could not put requests of several callers into one batch.
    module = {"scorer": "workers.scoring", "answerer": "workers.answering"}[part]
    return (sys.executable, "-m", module)


def become(program: tuple[str, ...]) -> None:
    """Go on as `program`, in this process, so that signals reach it."""
    sys.stdout.flush()
    os.execv(program[0], program)  # noqa: S606 - an argv list of ours


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m workers.start", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--queues", default="", help="queues of `train`, such as gpu or gpu,cpu")
    wanted = parser.parse_args()
    read_secret_files()
    if not os.environ.get("REDIS_URL"):
        parser.error("REDIS_URL (or REDIS_URL_FILE) must name the broker")
    os.umask(0o077)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    become(argv(wanted.part, queues=wanted.queues))


if __name__ == "__main__":
    main()
