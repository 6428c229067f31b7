"""Parts of Concord as they are used, for `tests.offline`: python -m tests.offline_parts NAME."""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path


def web(folder: Path) -> None:
    """The deployment check, and a web server with production's settings that answers."""
    from tests.system.a_site import free_port

    port = free_port()
    # A test that drives a browser in the same process allows what a deployment must not.
    ours = {k: v for k, v in os.environ.items() if k != "DJANGO_ALLOW_ASYNC_UNSAFE"}
    environment = ours | {
        "PRODUCTION": "1",
        "SECRET_KEY": "k" * 30 + "0123456789abcdefghijklmnopqrstuvwxyz",
        "ALLOWED_HOSTS": "127.0.0.1",
        "DATABASE_URL": f"postgresql://concord@/concord?host={folder}",
        "REDIS_URL": f"unix://{folder}/broker.sock",
        "CACHE_URL": f"unix://{folder}/cache.sock",
        "VAR_DIR": str(folder / "var"),
        "STATIC_ROOT": str(folder),
        "PORT": str(port),
        "WEB_WORKERS": "2",
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    manage = [sys.executable, "manage.py"]
    subprocess.run([*manage, "check", "--deploy"], env=environment, check=True)
    with subprocess.Popen([*manage, "start", "web"], env=environment) as server:
        try:
            assert answered(f"http://127.0.0.1:{port}/livez") == b"ok\n"
        finally:
            server.terminate()


def answered(url: str) -> bytes:
    """What it answers, once it does."""
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as page:  # noqa: S310
                return page.read()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def site(folder: Path) -> None:
    """Every program of `manage.py up`, and a page."""
    from tests.system.a_site import Site

    with Site(folder / "var") as started:
        assert b"csrfmiddlewaretoken" in answered(f"{started.url}/sign-in/")


def training(folder: Path) -> None:
    """Supervised training of a toy model by TRL, through `python -m workers.train`."""
    from tests.workers.recipes.language import Workshop, assistant, user

    shop = Workshop(folder)
    rows = [
        {"messages": user(f"{who} {does}") + assistant(f"{who} {does} a good dog")}
        for who in ("cat", "dog", "sun", "rain")
        for does in ("runs", "sleeps")
    ]
    shop.put_snapshot("answers", train=rows, dev=rows)
    config = {"max_steps": 2, "batch_size": 4, "max_length": 64, "log_every": 1, "eval_every": 2}
    done = shop.run(shop.spec("offline", "sft", config, data="answers"))
    assert done.ending == "Finished", (done.envelopes[-1], done.log[-3000:])


def libraries(folder: Path) -> None:
    """What is imported by trainings and exports, and by those who mirror runs."""
    import accelerate  # noqa: F401
    import datasets
    import huggingface_hub  # noqa: F401
    import peft  # noqa: F401
    import transformers  # noqa: F401
    import trl  # noqa: F401

    rows = datasets.Dataset.from_list([{"prompt": "a", "chosen": "b"}])
    rows.save_to_disk(str(folder / "rows"))
    assert datasets.load_from_disk(str(folder / "rows"))[0]["chosen"] == "b"


def ray(folder: Path) -> None:
    """A cluster of a run's own, an actor's work in it."""
    from workers.ray.cluster import Cluster

    cluster = Cluster.open(folder, actors=1)
    try:
        assert cluster.ray.get(cluster.ray.remote(lambda: 6 * 7).remote()) == 42
    finally:
        cluster.close()


PARTS: dict[str, Callable[[Path], None]] = {
    part.__name__: part for part in (web, site, training, libraries, ray)
}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="concord-part-") as name:
        PARTS[sys.argv[1]](Path(name))
