"""The cache on disk: built once, whole or not at all, and private."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from atentriton.cache import Cache, CacheError, default_cache, default_root


def write(text: str) -> Callable[[Path], None]:
    def builder(path: Path) -> None:
        path.write_text(text)

    return builder


def test_a_file_is_built_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    first = cache.build("key", ".txt", write("one"))
    second = cache.build("key", ".txt", write("two"))
    assert first == second == cache.path("key", ".txt")
    assert first.read_text() == "one"
    assert first.suffix == ".txt"


def test_keys_and_suffixes_are_told_apart(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    os.chmod(tmp_path, 0o700)
    paths = {
        cache.build("a", ".txt", write("1")),
        cache.build("b", ".txt", write("2")),
        cache.build("a", ".c", write("3")),
    }
    assert sorted(p.read_text() for p in paths) == ["1", "2", "3"]


def test_a_failed_build_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cache.build("key", ".txt", fail)
    assert [p for p in cache.root.rglob("*") if p.is_file()] == []
    assert cache.build("key", ".txt", write("whole")).read_text() == "whole"


def test_a_damaged_file_is_built_anew(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.discard(cache.build("key", ".txt", write("damaged")))
    cache.discard(cache.path("key", ".txt"))  # another process was quicker
    assert cache.build("key", ".txt", write("good")).read_text() == "good"


def test_a_builder_may_build_another_file(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")

    def build(path: Path) -> None:
        path.write_text(cache.text("inner", ".c").read_text() + " outer")

    assert cache.build("key", ".txt", build).read_text() == "inner outer"


def test_threads_wait_for_each_other(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    calls: list[int] = []

    def slow(path: Path) -> None:
        calls.append(1)
        time.sleep(0.05)
        path.write_text("x")

    threads = [
        threading.Thread(target=cache.build, args=("key", ".txt", slow))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def build_in_process(root: str, log: str) -> None:
    def slow(path: Path) -> None:
        with open(log, "a") as file:
            file.write("built\n")
        time.sleep(0.1)
        path.write_text("x")

    assert Cache(Path(root)).build("key", ".txt", slow).read_text() == "x"


def test_processes_wait_for_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    log = tmp_path / "log"
    processes = [
        context.Process(target=build_in_process, args=(tmp_path / "cache", log))
        for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [p.exitcode for p in processes] == [0] * 4
    assert log.read_text() == "built\n"


def test_the_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep" / "cache")
    path = cache.build("key", ".txt", write("x"))
    assert cache.root.stat().st_mode & 0o777 == 0o700
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    open_ = tmp_path / "open"
    open_.mkdir()
    open_.chmod(0o777)
    with pytest.raises(CacheError, match=r"others may write to it \(mode 0777\)"):
        Cache(open_)
    open_.chmod(0o755)
    Cache(open_)


def test_a_folder_of_someone_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(CacheError, match="it belongs to user"):
        Cache(tmp_path)


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="ATENTRITON_CACHE_DIR"):
        Cache(tmp_path / "file" / "cache")


def test_where_the_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ATENTRITON_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_root() == tmp_path / ".cache" / "atentriton"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_root() == tmp_path / "xdg" / "atentriton"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # not allowed to be
    assert default_root() == tmp_path / ".cache" / "atentriton"
    monkeypatch.setenv("ATENTRITON_CACHE_DIR", str(tmp_path / "own"))
    assert default_cache().root == tmp_path / "own"
    assert default_cache() is default_cache()
