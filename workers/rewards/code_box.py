"""Runs the Python code of one answer, shut off: `python -I -S code_box.py`, a request on stdin.

The request is JSON from `code_process.py`. The first line of standard output is `{"ready": true}`
or `{"refused": …}`, written before any of the answer's code is run. Then, for a function, a line
`{"value": …}` or `{"error": …}` for each call; for a program, whatever it prints.

Nothing here knows what is right: values and output are compared by the parent. So whatever the code
does to this process, it can forge only its own answers.

The order matters: namespaces need rights that are given up afterwards, and the filter of system
calls comes last, since nothing can be undone once it stands. Standard library only, one file.
"""

import contextlib
import ctypes
import errno
import io
import json
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOBODY = 65_534
THREADS = 32
DESCRIPTORS = 32
TOLD = 200  # characters of an error
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")

# include/uapi/linux: sched.h, mount.h, prctl.h, seccomp.h, audit.h
_NEW_CGROUP, _NEW_NS, _NEW_UTS, _NEW_IPC = 0x02000000, 0x00020000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PID, _NEW_NET, _THREAD = 0x10000000, 0x20000000, 0x40000000, 0x00010000
_NOSUID, _NODEV, _BIND, _REC, _PRIVATE = 2, 4, 4096, 16384, 1 << 18
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV, _AT_RECURSIVE, _AT_FDCWD = 1, 2, 4, 0x8000, -100
_MOUNT_SETATTR, _CLONE3 = 442, 435
_PDEATHSIG, _NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 1, 38, 22, 2
_CAPABILITIES = 0x20080522
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

# Numbers of system calls on x86_64 and aarch64; None where there is none.
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE, _PRCTL = (56, 220), (157, 167)
_DENIED: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "prlimit64": (302, 261),
    "setrlimit": (160, 164),
    # the network, whether or not there is a namespace
    "socket": (41, 198),
    "socketpair": (53, 199),
    "io_uring_setup": (425, 425),
    # memory that the limit of addresses does not count
    "shmget": (29, 194),
    "memfd_create": (319, 279),
    # the namespaces and the kernel
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (_MOUNT_SETATTR, _MOUNT_SETATTR),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
}


class Refused(Exception):
    """This machine cannot shut code off; the words are for whoever runs the worker."""


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    try:
        given = _shut_off(request)
    except (Refused, OSError) as error:
        _tell(sys.stdout, {"refused": str(error)})
        os._exit(1)
    _tell(sys.stdout, {"ready": True})
    if request["call"]:
        _call(request)
    else:
        _run(request, given)
    os._exit(0)  # neither atexit nor destructors have a say


# --- shutting off ---


def _shut_off(request: dict[str, Any]) -> io.BufferedIOBase | None:
    """Returns what the program finds on its standard input, if it is one."""
    if not sys.platform.startswith("linux") or platform.machine() not in _MACHINES:
        raise Refused("code can be shut off only on Linux on x86_64 or aarch64")
    libc = ctypes.CDLL(None, use_errno=True)
    _die_with_parent(libc)
    if os.getppid() != request["parent"]:
        os._exit(1)
    os.nice(5)
    nothing = os.open(os.devnull, os.O_RDWR)
    given = _standard_input(request, nothing)
    if request["namespaces"]:
        _separate(libc)
        _new_root(libc, request)
        resource.setrlimit(resource.RLIMIT_NPROC, (THREADS, THREADS))
    else:
        os.chdir(request["folder"])
    os.dup2(nothing, 2)
    _limit(request)
    _give_up_rights(libc)
    _filter_calls(libc)
    return given


def _checked(told: int, what: str) -> None:
    if told != 0:
        number = ctypes.get_errno()
        raise Refused(f"{what}: {os.strerror(number)}")


def _die_with_parent(libc: Any) -> None:
    _checked(libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "the parent-death signal")


def _standard_input(request: dict[str, Any], nothing: int) -> io.BufferedIOBase | None:
    if request["call"]:
        os.dup2(nothing, 0)
        return None
    given = os.memfd_create("input")
    with open(given, "wb", closefd=False) as file:
        file.write(request["input"].encode(errors="replace"))
    os.lseek(given, 0, os.SEEK_SET)
    os.dup2(given, 0)
    os.close(given)
    return open(0, "rb", closefd=False)


def _separate(libc: Any) -> None:
    """Namespaces of its own: users, mounts, network, processes, IPC, host name. Goes on in a child,
    which is the first process of its namespace."""
    user, group = os.geteuid(), os.getegid()
    spaces = _NEW_USER | _NEW_NS | _NEW_NET | _NEW_PID | _NEW_IPC | _NEW_UTS | _NEW_CGROUP
    _checked(libc.unshare(spaces), "the kernel gives this account no namespaces")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{NOBODY} {user} 1"),
        ("gid_map", f"{NOBODY} {group} 1"),
    ):
        Path("/proc/self", name).write_text(text)
    inner = os.fork()
    if inner:
        for descriptor in (0, 1):
            os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        os._exit(status if status >= 0 else 128 - status)
    _die_with_parent(libc)


def _new_root(libc: Any, request: dict[str, Any]) -> None:
    """A root that holds Python's library, read-only, and a small folder in memory to write to."""
    root = request["folder"]
    options = f"size={request['disk_bytes']},nr_inodes=4096,mode=755".encode()
    _checked(libc.mount(None, b"/", None, _REC | _PRIVATE, None), "private mounts")
    _checked(
        libc.mount(b"tmpfs", os.fsencode(root), b"tmpfs", _NOSUID | _NODEV, options),
        "a file system in memory",
    )
    base = f"{sys.base_prefix}/lib"
    wanted = sorted({os.path.realpath(one) for one in (base, *sys.path, *_LIBRARIES)})
    shown = [one for one in wanted if Path(one).is_dir()]
    linked = [one for one in _LIBRARIES if Path(one).is_symlink() and Path(one).is_dir()]
    for path in (*shown, *linked):
        if any(path.startswith(other + "/") for other in shown):
            continue
        Path(root + path).mkdir(parents=True)
        place = os.fsencode(root + path)
        _checked(libc.mount(os.fsencode(path), place, None, _BIND | _REC, None), f"showing {path}")
        attributes = struct.pack("=QQQQ", _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV, 0, 0, 0)
        _checked(
            libc.syscall(
                ctypes.c_long(_MOUNT_SETATTR),
                ctypes.c_long(_AT_FDCWD),
                ctypes.c_char_p(place),
                ctypes.c_ulong(_AT_RECURSIVE),
                ctypes.c_char_p(attributes),
                ctypes.c_ulong(len(attributes)),
            ),
            f"making {path} read-only (Linux 5.12 or later)",
        )
    Path(root, "tmp").mkdir(exist_ok=True)
    sys.path[:] = [os.path.realpath(one) for one in sys.path]
    os.chroot(root)
    os.chdir("/tmp")  # noqa: S108 - of the new root


def _limit(request: dict[str, Any]) -> None:
    for kind, most in (
        (resource.RLIMIT_AS, request["memory_bytes"]),
        (resource.RLIMIT_CPU, request["cpu_seconds"]),
        (resource.RLIMIT_FSIZE, request["disk_bytes"]),
        (resource.RLIMIT_NOFILE, DESCRIPTORS),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _give_up_rights(libc: Any) -> None:
    _checked(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    header, none = struct.pack("Ii", _CAPABILITIES, 0), bytes(24)
    _checked(libc.capset(header, none), "giving up capabilities")


def _filter_calls(libc: Any) -> None:
    """A seccomp filter: refuses what `_DENIED` lists, new processes, and another machine's calls.
    Threads stay possible: clone with the flag of a thread; clone3 says that it does not exist, so
    that the C library falls back to clone."""
    column, machine = _MACHINES[platform.machine()]
    load, equal, at_least, bits, give = 0x20, 0x15, 0x35, 0x45, 0x06
    refuse = (give, 0, 0, _ERRNO | errno.EPERM)
    program = [(load, 0, 0, 4), (equal, 1, 0, machine), (give, 0, 0, _KILL), (load, 0, 0, 0)]
    program += [(at_least, 0, 1, 0x40000000), refuse] if column == 0 else []
    for numbers in _DENIED.values():
        if (number := numbers[column]) is not None:
            program += [(equal, 0, 1, number), refuse]
    program += [(equal, 0, 1, _CLONE3), (give, 0, 0, _ERRNO | errno.ENOSYS)]
    argument, allow = (load, 0, 0, 16), (give, 0, 0, _ALLOW)
    program += [(equal, 0, 4, _CLONE[column]), argument, (bits, 1, 0, _THREAD), refuse, allow]
    program += [(equal, 0, 4, _PRCTL[column]), argument, (equal, 0, 1, _PDEATHSIG), refuse, allow]
    program += [allow]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in program))
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    _checked(
        libc.prctl(_SET_SECCOMP, _FILTER, ctypes.c_char_p(head), 0, 0), "a filter of system calls"
    )


# --- running ---


def _call(request: dict[str, Any]) -> None:
    """The function that the tests name, once for each of them."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    function: Callable[..., Any] | None = None
    failed = ""
    space: dict[str, Any] = {"__name__": "answer"}
    try:
        exec(compile(request["code"], "answer.py", "exec"), space)  # noqa: S102 - what this is for
        function = space[request["call"]]
    except KeyError as error:
        missing = error.args[:1] == (request["call"],)
        failed = f"has no function {request['call']}" if missing else _said(error)
    except BaseException as error:
        failed = _said(error)
    for arguments in request["arguments"]:
        try:
            told = {"error": failed} if function is None else {"value": function(*arguments)}
            line = json.dumps(told)
        except BaseException as error:
            line = json.dumps({"error": _said(error)})
        lines.write(line + "\n")
        lines.flush()


def _run(request: dict[str, Any], given: io.BufferedIOBase | None) -> None:
    """The code as a program that reads its input and prints."""
    sys.stdin = io.TextIOWrapper(given or io.BytesIO(), encoding="utf-8")
    status = 0
    try:
        code = compile(request["code"], "answer.py", "exec")
        exec(code, {"__name__": "__main__"})  # noqa: S102 - what this is for
    except SystemExit:
        pass
    except BaseException:
        status = 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(status)


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:TOLD]
    except BaseException:
        return "raised an error that cannot be printed"


def _tell(out: Any, what: dict[str, Any]) -> None:
    out.write(json.dumps(what) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
