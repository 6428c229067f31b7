"""How long a backup, a restore and a trial restore take, and how much can be lost (RPO, RTO).

A project of so many votes and files of so many megabytes, on servers of its own. Measured: a first
backup, a second one with nothing new, a trial restore, and a restore into an empty site by the
command that people type, start of its servers included.

The named alternative is what an administrator would write by hand: `pg_dump -Fc` and `cp -a` of the
artifact store, and `pg_restore` and `cp -a` back. It compares no hash, copies every file each time,
and a file that is copied while it changes is not noticed.

RPO, what can be lost, is the time between two backups and that of one; RTO that of a restore.

Run: python -m benchmarks.backup [--votes 1000000] [--files-mb 2000] [--key: encrypted too]
"""

import argparse
import base64
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import print_report, print_table
from benchmarks.site import site

ROOT = Path(__file__).resolve().parent.parent
FILES = 64
VOTES_OF_A_PAIR = 1.5  # of what labeling_world builds: half of the pairs have three


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--votes", type=int, default=1_000_000)
    arguments.add_argument("--files-mb", type=int, default=2_000)
    arguments.add_argument("--key", action="store_true", help="encrypted backups too")
    chosen = arguments.parse_args()
    with site() as var, tempfile.TemporaryDirectory(prefix="concord-bench-target-") as name:
        folder = Path(name)
        votes = build(var, chosen.votes, chosen.files_mb)
        by_hand = alternative(var, folder / "by-hand")
        ours = measured(folder / "plain", "")
        coded: dict[str, Any] = {}
        if chosen.key:
            key = folder / "key"
            key.write_text(base64.b64encode(os.urandom(32)).decode())
            coded = measured(folder / "coded", str(key))
    rows = [
        {"who": who, **found}
        for who, found in (("Concord", ours), ("Concord, encrypted", coded), ("by hand", by_hand))
        if found
    ]
    print_table(
        "Sizes",
        [
            {
                "votes": votes,
                "files MB": chosen.files_mb,
                "dump MB": ours["dump MB"],
                "dump by hand MB": by_hand["dump MB"],
            }
        ],
    )
    print_report(
        "backup",
        rows,
        {
            "votes": votes,
            "files_mb": chosen.files_mb,
            "backup_s": ours["backup s"],
            "again_s": ours["again s"],
            "restore_s": ours["restore s"],
            "trial_s": ours["trial s"],
            "dump_s": ours["dump s"],
            "copy_s": ours["copy s"],
            "rpo_hours_at_daily": round(24 + ours["again s"] / 3600, 2),
            "rpo_minutes_at_least": round(ours["again s"] / 60, 2),
            "rto_minutes": round(ours["restore s"] / 60, 2),
            "backup_over_by_hand": round(ours["backup s"] / by_hand["backup s"], 2),
            "again_over_by_hand": round(ours["again s"] / by_hand["again s"], 2),
            "restore_over_by_hand": round(ours["restore s"] / by_hand["restore s"], 2),
            "encrypted_backup_s": coded.get("backup s"),
            "encrypted_restore_s": coded.get("restore s"),
        },
    )


def build(var: Path, votes: int, megabytes: int) -> int:
    """Rows and files; the number of votes that there are."""
    from django.conf import settings

    from apps.labeling.models import Vote
    from benchmarks.labeling_world.build import project_build

    project_build("backup", -(-int(votes / VOTES_OF_A_PAIR) // 10) * 10)
    store = Path(settings.ARTIFACTS_URL) / "runs/benchmark"
    store.mkdir(parents=True)
    for number in range(FILES):
        with (store / f"{number}.safetensors").open("wb") as file:
            for _ in range(max(1, megabytes // FILES)):
                file.write(os.urandom(1 << 20))
    return Vote.objects.count()


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = act()
    return round(time.perf_counter() - started, 2), result


def measured(folder: Path, key_file: str) -> dict[str, Any]:
    """Concord's own, in this process but for the restore."""
    from apps.monitoring.services.backups import backup_make, restore_prove, target_of

    target = target_of(str(folder), key_file)
    first_s, first = timed(lambda: backup_make(target=target, say=_quiet))
    again_s, _ = timed(lambda: backup_make(target=target, say=_quiet))
    trial_s, _ = timed(lambda: restore_prove(target=target, say=_quiet))
    restore_s, _ = timed(lambda: _restored_elsewhere(folder, key_file))
    return {
        "backup s": first_s,
        "dump s": first.seconds["dump"],
        "copy s": first.seconds["copy"],
        "again s": again_s,
        "restore s": restore_s,
        "trial s": trial_s,
        "dump MB": round(first.database_bytes / 1e6, 1),
    }


def _quiet(text: str) -> None:
    pass


def _restored_elsewhere(target: Path, key_file: str) -> None:
    """By the command, into an empty site with servers of its own."""
    taken = {"DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "CACHE_URL", "ARTIFACTS_URL"}
    own = {name: value for name, value in os.environ.items() if name not in taken}
    with tempfile.TemporaryDirectory(prefix="concord-bench-restored-") as var:
        subprocess.run(
            [sys.executable, "manage.py", "restore", str(target)],
            cwd=ROOT,
            env=own | {"VAR_DIR": var, "BACKUP_KEY_FILE": key_file},
            check=True,
            capture_output=True,
        )


def alternative(var: Path, folder: Path) -> dict[str, Any]:
    """What the tools do without us."""
    from apps.common import embedded
    from apps.common.embedded.postgres import program

    folder.mkdir()
    url, dump, files = os.environ["DATABASE_URL"], folder / "dump", folder / "files"

    def backup() -> None:
        subprocess.run([program("pg_dump"), "-Fc", "-f", dump, url], check=True)
        subprocess.run(["cp", "-a", var / "artifacts", files], check=True)

    backup_s, _ = timed(backup)
    dump_mb = dump.stat().st_size / 1e6
    subprocess.run(["rm", "-r", files], check=True)
    again_s, _ = timed(backup)

    def restore() -> None:
        with embedded.postgres_alone(folder / "server") as address:
            argv = [program("pg_restore"), "--no-owner", "-d", address(embedded.SUPERUSER), dump]
            subprocess.run(argv, check=True)
            subprocess.run(["cp", "-a", files, folder / "restored"], check=True)

    restore_s, _ = timed(restore)
    return {
        "backup s": backup_s,
        "dump s": "",
        "copy s": "",
        "again s": again_s,
        "restore s": restore_s,
        "trial s": "none",
        "dump MB": round(dump_mb, 1),
    }


if __name__ == "__main__":
    main()
