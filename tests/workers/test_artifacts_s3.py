"""The artifact store on S3: what is stored, what is checked, what is fetched once only."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.s3 import Bucket, bucket, s3
from workers import artifacts
from workers.artifacts import MANIFEST, ArtifactError, Store, StoreUnreachable
from workers.contract.events import Fault
from workers.train import failure_of

__all__ = ["bucket", "s3"]  # fixtures
ROOT = Path(__file__).resolve().parents[2]


def restart() -> None:
    """As after one: this process holds nothing."""
    while artifacts._held:
        artifacts._held.popitem()[1].close()


@pytest.fixture(autouse=True)
def held_by_nobody() -> Iterator[None]:
    restart()
    yield
    restart()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 64)
    (folder / "deep" / "er" / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    (folder / "empty").touch()
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_operation_works_there_as_in_a_folder(bucket: Bucket, tmp_path: Path) -> None:
    for url in (str(tmp_path / "folder"), bucket.url):
        store = Store(url)
        assert not store.exists("a/b.txt")
        digest = store.write_bytes("a/b.txt", b"hello")
        assert digest == hashlib.sha256(b"hello").hexdigest()
        assert store.exists("a/b.txt")
        assert store.read_bytes("a/b.txt", sha256=digest) == b"hello"
        store.write_bytes("a/rows.jsonl", b'{"x": 1}\n\n{"x": 2}\n')
        assert list(store.lines("a/rows.jsonl")) == [{"x": 1}, {"x": 2}]
        store.write_bytes("a/deeper/c", b"")
        assert store.names("a") == ["b.txt", "rows.jsonl"]
        assert store.names("nowhere") == []
        local = tmp_path / "one-file"
        local.write_bytes(b"one")
        digest = store.put_file(local, "files/one")
        got = store.get_file("files/one", sha256=digest, cache=tmp_path / "cache")
        assert got.read_bytes() == b"one"
        store.delete_tree("a")
        store.delete_tree("a")
        assert store.names("a") == []
        assert not store.exists("a/deeper/c")
        for wrong in ("../x", "/x", "a/../../x", ""):
            with pytest.raises(ArtifactError, match="leaves the store"):
                store.read_bytes(wrong)
    assert bucket.names() == ["files/one"]


def test_a_tree_comes_back_as_it_was_and_names_its_content(
    bucket: Bucket, tree: Path, tmp_path: Path
) -> None:
    store = Store(bucket.url)
    sha256, size = store.put_tree(tree, "t")
    assert size == 64 * 256 + 18
    manifest = json.loads(bucket.read(f"t/{MANIFEST}"))
    assert manifest == {
        name: hashlib.sha256(data).hexdigest() for name, data in files(tree).items()
    }
    assert sha256 == Store(str(tmp_path / "folder")).put_tree(tree, "t")[0], "as a folder says"
    folder = Store(bucket.url).get_tree("t", sha256=sha256, cache=tmp_path / "cache")
    assert files(folder) == files(tree)


def test_a_large_file_goes_up_in_parts_and_many_files_at_once(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "PART", 5 << 20)  # S3 takes none that is smaller
    big = tmp_path / "big"
    big.mkdir()
    block = os.urandom(1 << 20)
    with (big / "model.safetensors").open("wb") as file:
        for i in range(12):
            file.write(bytes([i]) + block[1:])
    store = Store(bucket.url)
    sha256, _ = store.put_tree(big, "big")
    key = {"Bucket": bucket.name, "Key": "artifacts/big/model.safetensors"}
    assert bucket.client.head_object(**key)["ETag"].strip('"').endswith("-3"), "three parts"
    folder = store.get_tree("big", sha256=sha256, cache=tmp_path / "cache")
    wanted = hashlib.sha256((big / "model.safetensors").read_bytes()).digest()
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).digest() == wanted
    many = tmp_path / "many"
    many.mkdir()
    for i in range(20):
        (many / f"{i}.txt").write_text(str(i))
    sha256, _ = store.put_tree(many, "many")
    assert files(store.get_tree("many", sha256=sha256, cache=tmp_path / "c")) == files(many)
    store.delete_tree("many")
    assert not any(name.startswith("many") for name in bucket.names())


def test_an_object_that_was_changed_is_refused_and_leaves_nothing_behind(
    bucket: Bucket, tree: Path, tmp_path: Path
) -> None:
    store = Store(bucket.url)
    sha256, _ = store.put_tree(tree, "t")
    bucket.write("t/weights.bin", b"other weights")
    with pytest.raises(ArtifactError, match=r"weights\.bin.* damaged"):
        store.get_tree("t", sha256=sha256, cache=tmp_path / "cache")
    left = tmp_path / "cache" / sha256
    assert not [name for name in files(left) if "weights" in name]
    bucket.write("one", b"x")
    with pytest.raises(ArtifactError, match="'one' is damaged"):
        store.get_file("one", sha256="0" * 64, cache=tmp_path / "cache")
    with pytest.raises(ArtifactError, match="not the content"):
        store.get_tree("t", sha256="0" * 64, cache=tmp_path / "cache")


def test_what_is_missing_and_what_was_never_stored_whole_are_told_so(
    bucket: Bucket, tree: Path, tmp_path: Path
) -> None:
    store = Store(bucket.url)
    sha256, _ = store.put_tree(tree, "t")
    bucket.delete("t/deep/er/rows.jsonl")
    with pytest.raises(ArtifactError, match=r"rows\.jsonl.* missing"):
        store.get_tree("t", sha256=sha256, cache=tmp_path / "cache")
    bucket.delete(f"t/{MANIFEST}")  # it is written last: so an interrupted upload looks
    with pytest.raises(ArtifactError, match="'t' is missing"):
        store.get_tree("t", sha256=sha256, cache=tmp_path / "cache")
    with pytest.raises(ArtifactError, match="'gone' is missing"):
        store.read_bytes("gone")
    with pytest.raises(ArtifactError, match="'gone' is missing"):
        store.get_file("gone", sha256=sha256, cache=tmp_path / "cache")


def test_an_upload_that_is_killed_leaves_no_tree(bucket: Bucket, tmp_path: Path) -> None:
    """kill -9 of itself within the second file: there is no manifest, and no half of an object."""
    program = f"""
import os, signal
from pathlib import Path
from workers import artifacts
artifacts.AT_ONCE, artifacts.PART = 1, 5 << 20
folder = Path({str(tmp_path)!r}) / "cut"
folder.mkdir()
(folder / "a").write_bytes(b"a" * 100)
(folder / "b").write_bytes(b"b" * (12 << 20))
real, seen = artifacts._copy, []
def copy(source, target):
    seen.append(1)
    if len(seen) == 2:
        target.write(source.read(8 << 20))
        os.kill(os.getpid(), signal.SIGKILL)
    return real(source, target)
artifacts._copy = copy
artifacts.Store({bucket.url!r}).put_tree(folder, "cut")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | bucket.environment,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == -9, ended.stderr[-2000:]
    assert bucket.names() == ["cut/a"]
    with pytest.raises(ArtifactError, match="stored whole"):
        Store(bucket.url).get_tree("cut", sha256="0" * 64, cache=tmp_path / "cache")


def test_what_a_machine_has_is_not_fetched_again_after_a_restart_and_what_broke_is(
    bucket: Bucket, tree: Path, tmp_path: Path
) -> None:
    store, cache = Store(bucket.url), tmp_path / "cache"
    sha256, _ = store.put_tree(tree, "t")
    folder = store.get_tree("t", sha256=sha256, cache=cache)
    for name in files(tree):
        bucket.delete(f"t/{name}")
    restart()
    assert files(Store(bucket.url).get_tree("t", sha256=sha256, cache=cache)) == files(tree)
    (folder / "weights.bin").write_bytes(b"a disk that rots")
    with pytest.raises(ArtifactError, match=r"weights\.bin.* missing"):
        Store(bucket.url).get_tree("t", sha256=sha256, cache=cache)
    bucket.write("t/weights.bin", (tree / "weights.bin").read_bytes())
    assert files(Store(bucket.url).get_tree("t", sha256=sha256, cache=cache)) == files(tree)
    half = cache / sha256 / "weights.bin"
    half.rename(half.with_name("weights.bin.part"))  # killed while it fetched
    assert "weights.bin" in files(Store(bucket.url).get_tree("t", sha256=sha256, cache=cache))


def test_room_is_made_by_what_was_not_used_for_longest_and_never_by_what_is_in_use(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, cache = Store(bucket.url), tmp_path / "cache"
    hashes = []
    for i, name in enumerate("abcd"):
        digest = store.write_bytes(name, name.encode() * 1000)
        hashes.append(digest)
        if name == "d":
            break
        store.get_file(name, sha256=digest, cache=cache)
        os.utime(cache / digest, (1000 + i, 1000 + i))
    for name in (hashes[1], hashes[2]):  # a stays in use
        artifacts._held.pop(cache / name).close()
    monkeypatch.setenv("ARTIFACTS_CACHE_GB", "0.000002")
    store.get_file("d", sha256=hashes[3], cache=cache)
    assert sorted(path.name for path in cache.iterdir() if path.is_dir()) == sorted(
        [hashes[0], hashes[2], hashes[3]]
    )


def test_a_store_that_cannot_be_reached_is_the_machines_fault_and_worth_another_try(
    bucket: Bucket,
) -> None:
    nowhere = Store(f"s3://{bucket.name}-gone/artifacts")
    with pytest.raises(StoreUnreachable, match="'x'") as raised:
        nowhere.write_bytes("x", b"1")
    failed = failure_of(raised.value)
    assert (failed.kind, failed.fault, failed.retryable) == (
        "store_unreachable",
        Fault.MACHINE,
        True,
    )
    assert failure_of(ArtifactError("artifact 'x' is damaged")).kind == "damaged_input"
