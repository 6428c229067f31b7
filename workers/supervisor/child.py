"""The trainer as a process: started so that it never outlives us, ended politely or not."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from workers.control import end_with_parent
from workers.machine import ATTEMPT, MARK, processes_of

# What a trainer gets of the worker's environment: what a trainer reads, and nothing else.
#
# A list of what is allowed, since a variable that somebody adds to the web side tomorrow may be a
# password. `TRAINER_ENVIRONMENT` names further ones.

VARIABLE = "TRAINER_ENVIRONMENT"
_SYSTEM = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "HOSTNAME",
    "TERM",
    "TZ",
    "TMPDIR",
    "LANG",
    "LANGUAGE",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "XDG_CACHE_HOME",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "CC",
    "CXX",
    "CPATH",
    "LIBRARY_PATH",  # Triton compiles
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
)
_OURS = (
    "VAR_DIR",
    "WORK_DIR",
    "LOG_LEVEL",
    "MODEL_FOLDERS",
    "DRILL_FOLDER",
    "TRAINER_PROCESSES",
    "ARTIFACTS_CACHE",
    "ARTIFACTS_CACHE_GB",
    "SCORE_CACHE_URL",
    "TRACKING",
    "TRACKING_DIR",
    "CODE_VERIFIER",
    "CODE_VERIFIER_WITHOUT_NAMESPACES",
    "REWARD_HOSTS",
    "REWARD_TOKEN",
    "INFERENCE_HOSTS",
    "INFERENCE_TOKEN",
)
_BEGINNINGS = (
    "LC_",
    "PYTHON",
    "COVERAGE_",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "GLOO_",
    "UCX_",
    "FI_",
    "ROCR_",
    "ROCM_",
    "HIP_",
    "HSA_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "NUMEXPR_",
    "TORCH",
    "PYTORCH_",
    "TRITON_",
    "ACCELERATE_",
    "FSDP_",
    "DEEPSPEED_",
    "DS_",
    "RAY_",
    "VLLM_",
    "HF_",
    "HUGGINGFACE_",
    "TRANSFORMERS_",
    "TOKENIZERS_",
    "SAFETENSORS_",
    "AWS_",
    "FSSPEC_",
    "GOOGLE_",
    "AZURE_",  # of an artifact store elsewhere
    "MLFLOW_",
    "WANDB_",
    "REWARD_TOKEN_",
    "INFERENCE_TOKEN_",
)


def trainer_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The part of `ours` that a trainer gets."""
    added = [word.strip() for word in ours.get(VARIABLE, "").split(",")]
    allowed = {*_SYSTEM, *_OURS, *added}
    return {
        name: value
        for name, value in ours.items()
        if name in allowed or name.startswith(_BEGINNINGS)
    }


ROOT = Path(__file__).resolve().parents[2]
_UNTIL_DEAD_S = 5.0
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
TAIL_BYTES = 8_000
TAIL_LINES = 60


class Trainer:
    """A child in its own session, so that signals reach its whole process group and nobody else.

    Three things end it when we die, `kill -9` included: the kernel's parent-death signal (to the
    direct child, and from a launcher to its ranks), end of file on its standard input, and, as long
    as we live, `kill`. Start it from the main thread: the kernel watches the thread.
    """

    def __init__(
        self,
        argv: list[str],
        *,
        run: str,
        attempt: int,
        output: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to what the trainer gets of ours. What an earlier attempt of
        `run` may have left on this machine is ended first."""
        endprocesses_of(run, attempt)
        self._run, self._attempt = run, attempt
        self._output = output
        self._kills_before = _out_of_memory_kills()
        inherited = trainer_environment(os.environ)
        inherited.setdefault("HF_HUB_OFFLINE", "1")
        inherited["PYTHONUNBUFFERED"] = "1"
        inherited |= {MARK: run, ATTEMPT: str(attempt)}
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                argv,
                cwd=ROOT,
                env=inherited | dict(environment or {}),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with(os.getpid()),
            )
        self.pid = self._process.pid
        self._dead = False
        os.set_blocking(self._process.stdin.fileno(), False)  # type: ignore[union-attr] # piped when it was started

    def wait(self, seconds: float) -> int | None:
        """The exit status, or None when it still runs after `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def terminate(self) -> None:
        self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """End the trainer, its ranks and all they started; returns when they are dead."""
        if self._dead:
            return
        self._signal_group(signal.SIGKILL)
        self._process.wait()
        self._dead = True
        endprocesses_of(self._run, self._attempt)
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr] # piped when it was started

    def reassure(self) -> None:
        """Tell a trainer that counts on it that the lease was renewed (see `--lifeline`)."""
        if not self._dead:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), b".")  # type: ignore[union-attr] # piped when it was started

    def _signal_group(self, number: int) -> None:
        # The group may outlive its leader; once both are gone their number is anybody's.
        if self._dead:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def tail(self) -> list[str]:
        """The last lines it printed."""
        try:
            with self._output.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                return file.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
        except FileNotFoundError:
            return []

    def lacked_memory(self) -> bool:
        """Whether the kernel has ended processes for want of memory since the trainer began."""
        return _out_of_memory_kills() > self._kills_before

    def died_of(self, status: int, *, called: str = "trainer") -> tuple[str, str]:
        """(failure kind, sentence) for a trainer that ended without a word."""
        if status >= 0:
            return "exited", f"The {called} ended with status {status} and without a word."
        number = -status
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        if number in _CRASHES:
            return "crashed", f"The {called} crashed ({name})."
        if number == signal.SIGKILL and self.lacked_memory():
            return (
                "out_of_memory",
                f"The machine ran out of memory and the kernel ended the {called}.",
            )
        return "killed", f"The {called} was killed from outside ({name})."


def endprocesses_of(run: str, attempt: int) -> None:
    """Kill whatever on this machine was started for `run` up to this attempt: ranks and data
    loaders lead sessions of their own, which no signal to the trainer's group reaches. A later
    attempt may be at work here already, and stays. Waits a few seconds for their end."""
    deadline = time.monotonic() + _UNTIL_DEAD_S
    while (found := processes_of(run, attempt)) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _end_with(parent: int) -> Callable[[], None]:
    """For `preexec_fn` in a child of `parent`."""

    def prepare() -> None:
        end_with_parent()
        if os.getppid() != parent:  # it died between fork and here
            os._exit(1)

    return prepare


def _out_of_memory_kills() -> int:
    """How many processes the kernel has ended for want of memory: in our control group where that
    is counted, else on the whole machine."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        group = Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2].lstrip("/")
        counts = _counters(Path("/sys/fs/cgroup") / group / "memory.events")
        if "oom_kill" in counts:
            return counts["oom_kill"]
    with contextlib.suppress(OSError, ValueError):
        return _counters(Path("/proc/vmstat")).get("oom_kill", 0)
    return 0


def _counters(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2}
