"""Result files of other evaluation programs: lm-evaluation-harness and Inspect.

Each task of a file becomes an `OutsideTask`: its metrics, and by what it was measured as a protocol
of its own with a SHA-256. As in Concord's own protocols the model that is measured is no part of
it, so that two models measured alike have one hash; what is left of the model's arguments (dtype,
length, engine) is. Read as data: nothing of a file is run, and names of secrets are left out.

Formats: lm-evaluation-harness 0.4 (`results_*.json`, or a zip of a folder with its
`samples_*.jsonl`); Inspect log version 2 (`.json`, or `.eval`, a zip whose `header.json` is read).
"""

import hashlib
import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.common.errors import DomainError
from apps.common.json_limits import storable
from workers.contract.protocol import canonical, content_sha256

VERSION = 1  # of the protocol that is made of a file
LM_EVAL, INSPECT = "lm-evaluation-harness", "inspect"
LARGEST = 32_000_000  # bytes of a file, and of all that is read of a zip
MOST_TASKS = 500
_LONGEST_PROTOCOL = 200_000  # characters
# Arguments that say which model is measured, or where it is.
_MODEL_NAMES = frozenset(
    {
        *("pretrained", "peft", "delta", "model", "model_name", "path", "engine", "tokenizer"),
        *("revision", "subfolder", "base_url", "gguf_file", "device", "num_concurrent"),
        *("max_retries", "timeout"),
    }
)
_SECRET = re.compile(
    r"(api|access|auth|hf|private|bearer)[-_]?(key|token)|^(key|token)$|secret|password|"
    r"authorization|credential",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ALREADY_SAID = ("name", "alias", "sample_len", "sample_count", "samples", " ")


@dataclass(frozen=True, slots=True)
class OutsideMetric:
    """name: as its program calls it, with the filter or scorer; stderr: None where it gives none;
    n: samples behind it, None where the file does not say."""

    name: str
    value: float
    stderr: float | None
    n: int | None
    higher_is_better: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideTask:
    """system: what the file says of the model that was measured, for people to compare with the one
    that they chose; measured_at: as the file writes it, empty where it does not."""

    program: str
    task: str
    metrics: list[OutsideMetric]
    protocol: Mapping[str, Any]
    system: Mapping[str, Any] = field(default_factory=dict)
    measured_at: str = ""

    @property
    def sha256(self) -> str:
        return content_sha256(self.protocol)


def outside_tasks(data: bytes) -> list[OutsideTask]:
    """What a file holds. Raises `DomainError` (`bad_results`, field `file`) with the reason: cut
    off, another program's, without results, NaN, not finished."""
    if len(data) > LARGEST:
        raise _bad(f"is larger than {LARGEST // 10**6} MB")
    try:
        if data[:4] == b"PK\x03\x04":
            found = _from_zip(data)
        else:
            found = _from_json(_object(data, "the file"), {})
    except RecursionError:
        raise _bad("it is nested too deeply") from None
    if len(found) > MOST_TASKS:
        raise _bad(f"holds {len(found):,} tasks; {MOST_TASKS} is the most")
    for one in found:
        if len(canonical(one.protocol)) > _LONGEST_PROTOCOL:
            raise _bad(f"task {one.task}: its configuration is too long to be kept")
    return found


def _bad(what: str) -> DomainError:
    return DomainError(f"The file cannot be used: {what}.", code="bad_results", field="file")


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _bad(f"{name} is no text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise _bad(f"{name} is cut off or damaged at line {error.lineno}: {error.msg}") from None
    if not isinstance(found, dict):
        raise _bad(f"{name} is no JSON object")
    return found


def _from_json(found: Mapping[str, Any], samples: Mapping[str, bytes]) -> list[OutsideTask]:
    if isinstance(found.get("eval"), Mapping) and "status" in found:
        return [_inspect(found)]
    if isinstance(found.get("results"), Mapping) and "versions" in found:
        return list(_lm_eval(found, samples))
    raise _bad(
        "it is neither results_*.json of lm-evaluation-harness (which has results, versions and "
        "configs) nor a log of Inspect (which has version, status and eval)"
    )


def _from_zip(data: bytes) -> list[OutsideTask]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if "header.json" in names:
                return _from_json(_object(_part(archive, "header.json"), "header.json"), {})
            if "_journal/start.json" in names:
                raise _bad("the evaluation was not finished: its log has no header")
            results = [name for name in names if _called(name, "results_", ".json")]
            if len(results) != 1:
                raise _bad(
                    f"the archive holds {len(results)} files results_*.json and no header.json; "
                    "zip one folder of lm-evaluation-harness, or send one .eval of Inspect"
                )
            found = _part(archive, results[0])
            samples: dict[str, bytes] = {}
            left = LARGEST - len(found)
            for name in names:
                if _called(name, "samples_", ".jsonl"):
                    samples[name] = _part(archive, name, left)
                    left -= len(samples[name])
            return _from_json(_object(found, results[0]), samples)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise _bad("the archive is cut off or damaged") from None
    except RecursionError:
        raise
    except NotImplementedError:
        raise _bad(
            "the archive is compressed in a way that cannot be read here; write it as JSON "
            "(inspect log convert --to json)"
        ) from None
    except RuntimeError:  # what `zipfile` says of a password
        raise _bad("the archive is encrypted") from None


def _called(name: str, start: str, end: str) -> bool:
    base = name.rsplit("/", 1)[-1]
    return base.startswith(start) and base.endswith(end)


def _part(archive: zipfile.ZipFile, name: str, most: int = LARGEST) -> bytes:
    """Whatever size the archive states of it."""
    with archive.open(name) as part:
        data = part.read(most + 1)
    if len(data) > most:
        raise _bad(f"what is read of the archive is larger than {LARGEST // 10**6} MB, at {name}")
    return data


# lm-evaluation-harness.


def _lm_eval(found: Mapping[str, Any], samples: Mapping[str, bytes]) -> Iterator[OutsideTask]:
    results = found["results"]
    n_read = 0
    hashes = {**_mapping(found, "task_hashes")}
    for name, data in samples.items():
        task = _task_of(name, results)
        hashes[task] = _samples_checked(task, name, data, found)
    for task, told in results.items():
        if not isinstance(told, Mapping):
            raise _bad(f"results of the task {task} are no object")
        metrics = _lm_metrics(str(task), told, found)
        if metrics:  # a group without figures of its own has a name alone
            n_read += 1
            yield OutsideTask(
                program=LM_EVAL,
                task=storable(str(task)),
                metrics=metrics,
                protocol=_lm_protocol(str(task), found, hashes),
                system=_lm_system(found),
                measured_at=str(found.get("date") or ""),
            )
    if not n_read:
        raise _bad("it has no results: no task of it has a metric")


def _lm_metrics(
    task: str, told: Mapping[str, Any], found: Mapping[str, Any]
) -> list[OutsideMetric]:
    better = _mapping(_mapping(found, "higher_is_better"), task)
    counts = _mapping(found, "n-samples").get(task)
    n = counts.get("effective") if isinstance(counts, Mapping) else told.get("sample_len")
    metrics = []
    for key, value in told.items():
        if key in _ALREADY_SAID or "_stderr," in key or "," not in key:
            continue
        name, _, kind = key.partition(",")
        number = _number(value, f"{task}: {key}")
        error = told.get(f"{name}_stderr,{kind}")
        error = None if error in (None, "N/A") else _number(error, f"{task}: stderr of {key}")
        metrics.append(
            OutsideMetric(
                name=name if kind == "none" else f"{name} ({kind})",
                value=number,
                stderr=None
                if error in (None, "N/A")
                else _number(error, f"{task}: stderr of {key}"),
                n=n if isinstance(n, int) and not isinstance(n, bool) else None,
                higher_is_better=better.get(name) if isinstance(better.get(name), bool) else None,
            )
        )
    return metrics


def _lm_protocol(task: str, found: Mapping[str, Any], hashes: Mapping[str, Any]) -> dict[str, Any]:
    config = _mapping(found, "config")
    own = dict(_mapping(_mapping(found, "configs"), task))
    own.pop("metadata", None)  # has the model's arguments in it; the version is told below
    counts = _mapping(found, "n-samples").get(task)
    arguments = _arguments(config.get("model_args"))
    return _plain(
        {
            "version": VERSION,
            "program": LM_EVAL,
            "program_version": found.get("lm_eval_version"),
            "git_hash": found.get("git_hash"),
            "task": task,
            "task_version": _mapping(found, "versions").get(task),
            "task_hash": hashes.get(task),
            "task_config": own,
            "subtasks": _mapping(found, "group_subtasks").get(task) or [],
            "n_shot": _mapping(found, "n-shot").get(task),
            "samples": counts.get("effective") if isinstance(counts, Mapping) else None,
            "engine": config.get("model"),
            "model_args": {k: v for k, v in arguments.items() if k not in _MODEL_NAMES},
            "model_dtype": config.get("model_dtype"),
            "transformers_version": found.get("transformers_version"),
            "chat_template_sha": found.get("chat_template_sha"),
            "system_instruction_sha": found.get("system_instruction_sha"),
            "fewshot_as_multiturn": found.get("fewshot_as_multiturn"),
            "max_length": found.get("max_length"),
            **{
                name: config.get(name)
                for name in ("gen_kwargs", "limit", "batch_size", "random_seed", "numpy_seed")
            },
            "torch_seed": config.get("torch_seed"),
            "fewshot_seed": config.get("fewshot_seed"),
        }
    )


def _lm_system(found: Mapping[str, Any]) -> dict[str, Any]:
    config = _mapping(found, "config")
    arguments = _arguments(config.get("model_args"))
    return _plain(
        {
            "model": found.get("model_name") or arguments.get("pretrained") or "",
            "revision": config.get("model_revision"),
            "sha": config.get("model_sha"),
            "arguments": {k: v for k, v in arguments.items() if k in _MODEL_NAMES},
        }
    )


def _arguments(given: Any) -> dict[str, Any]:
    """`--model_args` as it is echoed: an object, its JSON, or name=value parts."""
    if isinstance(given, str):
        text = given.strip()
        if text.startswith("{"):
            try:
                given = json.loads(text)
            except ValueError:
                given = {}
        else:
            parts = (part.partition("=") for part in text.split(",") if part)
            given = {name.strip(): value.strip() for name, _, value in parts}
    return dict(given) if isinstance(given, Mapping) else {}


def _task_of(name: str, results: Mapping[str, Any]) -> str:
    base = name.rsplit("/", 1)[-1].removeprefix("samples_")
    fitting = [task for task in results if base.startswith(f"{task}_")]
    if not fitting:
        raise _bad(f"{name} is of a task that the results do not have")
    return str(max(fitting, key=len))


def _samples_checked(task: str, name: str, data: bytes, found: Mapping[str, Any]) -> str:
    """The hash of the task's samples as the program makes it. Raises where the samples are of
    another run than the results."""
    try:
        rows = [json.loads(line) for line in data.decode("utf-8").splitlines() if line.strip()]
        told = "".join(r["doc_hash"] + r["prompt_hash"] + r["target_hash"] for r in rows)
        documents = {row["doc_id"] for row in rows}
    except (ValueError, KeyError, TypeError):
        raise _bad(f"{name} is cut off, damaged or of another format") from None
    made = hashlib.sha256(told.encode("utf-8")).hexdigest()
    stated = _mapping(found, "task_hashes").get(task)
    if stated and stated != made:
        raise _bad(f"{name} is of another run: its task hash is not that of the results")
    counts = _mapping(found, "n-samples").get(task)
    n = counts.get("effective") if isinstance(counts, Mapping) else None
    if isinstance(n, int) and n != len(documents):
        raise _bad(f"{name} has {len(documents):,} documents, the results say {n:,}")
    return made


# Inspect.

_LIMITS = ("limit", "sample_id", "sample_shuffle", "epochs", "epochs_reducer")
_BOUNDS = ("message_limit", "token_limit", "time_limit", "working_limit", "cost_limit")
_OF_MEAN = ("accuracy", "mean")


def _inspect(log: Mapping[str, Any]) -> OutsideTask:
    spec, status = _mapping(log, "eval"), log.get("status")
    task = storable(str(spec.get("task") or ""))
    if status != "success":
        raise _bad(
            f"the evaluation of {task or 'its task'} did not end well: its status is {status}"
        )
    if log.get("invalidated"):
        raise _bad("some of its samples were marked as invalid")
    results = _mapping(log, "results")
    if "scorer" in results:
        raise _bad("its log is of an older format; rewrite it (inspect log convert --to json)")
    metrics = list(_inspect_metrics(results))
    if not task or not metrics:
        raise _bad("it has no results: no scorer of it has a metric")
    return OutsideTask(
        program=INSPECT,
        task=task,
        metrics=metrics,
        protocol=_inspect_protocol(log, spec, results),
        system=_plain(
            {
                "model": spec.get("model") or "",
                "base_url": spec.get("model_base_url"),
                "arguments": {
                    k: v for k, v in _mapping(spec, "model_args").items() if k in _MODEL_NAMES
                },
            }
        ),
        measured_at=str(spec.get("created") or ""),
    )


def _inspect_metrics(results: Mapping[str, Any]) -> Iterator[OutsideMetric]:
    scores = results.get("scores")
    for score in scores if isinstance(scores, list) else []:
        if not isinstance(score, Mapping):
            raise _bad("a score of it is no object")
        name, told = str(score.get("name")), _mapping(score, "metrics")
        n = score.get("scored_samples") or results.get("completed_samples")
        values = {
            key: _number(one.get("value") if isinstance(one, Mapping) else one, f"{name}: {key}")
            for key, one in told.items()
        }
        error = values.pop("stderr", None)
        reducer = f", {score['reducer']}" if score.get("reducer") else ""
        for key, value in values.items():
            yield OutsideMetric(
                name=f"{key} ({name}{reducer})",
                value=value,
                stderr=error if key in _OF_MEAN else None,
                n=n if isinstance(n, int) and not isinstance(n, bool) else None,
            )


def _inspect_protocol(
    log: Mapping[str, Any], spec: Mapping[str, Any], results: Mapping[str, Any]
) -> dict[str, Any]:
    plan, config = _mapping(log, "plan"), _mapping(spec, "config")
    revision, dataset = _mapping(spec, "revision"), _mapping(spec, "dataset")
    ids = dataset.get("sample_ids")
    steps = plan.get("steps")
    scores = [one for one in results.get("scores") or [] if isinstance(one, Mapping)]
    return _plain(
        {
            "version": VERSION,
            "program": INSPECT,
            "program_version": _mapping(spec, "packages").get("inspect_ai"),
            "git_hash": revision.get("commit"),
            "uncommitted_changes": revision.get("dirty"),
            "task": spec.get("task"),
            "task_version": spec.get("task_version"),
            "task_args": _mapping(spec, "task_args"),
            "dataset": {
                "name": dataset.get("name"),
                "samples": dataset.get("samples"),
                "shuffled": dataset.get("shuffled"),
                "sample_ids_sha256": content_sha256(ids) if isinstance(ids, list) else None,
            },
            "solver": [
                {"name": one.get("solver"), "params": one.get("params")}
                for one in (steps if isinstance(steps, list) else [])
                if isinstance(one, Mapping)
            ],
            "generate": {
                **_mapping(spec, "model_generate_config"),
                **_mapping(plan, "config"),
            },
            "model_args": {
                k: v for k, v in _mapping(spec, "model_args").items() if k not in _MODEL_NAMES
            },
            "model_roles": _mapping(spec, "model_roles"),
            "scorers": [
                {"scorer": one.get("scorer"), "params": one.get("params")} for one in scores
            ],
            **{name: config.get(name) for name in (*_LIMITS, *_BOUNDS)},
        }
    )


# What both need.


def _mapping(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return found if isinstance(found, Mapping) else {}


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(f"{name} is no number")
    if not math.isfinite(value):
        raise _bad(f"{name} is NaN or infinite")
    return float(value)


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON that can be hashed and stored: without secrets, addresses in memory, NaN and
    infinities."""
    return storable(_cleaned(value))


def _cleaned(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            str(name): "(left out)" if _SECRET.search(str(name)) and one else _cleaned(one)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_cleaned(one) for one in value]
    if isinstance(value, str):
        return _ADDRESS.sub("", value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
