"""The command line: `concord runs launch …`.

The site and the token come from CONCORD_URL and CONCORD_TOKEN, or from `concord login`; a token is
never an argument, where others on the machine could read it. The project is -p or CONCORD_PROJECT.

Exit codes: 0 done; 1 refused by the server; 2 wrong usage; 3 a run that was waited for failed or
was cancelled; 4 no answer; 5 --timeout is over and the run goes on; 130 Ctrl-C. Errors go to
standard error, results to standard output, with --json both as JSON.
"""

import argparse
import dataclasses
import getpass
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from concord.errors import ConcordError, RunFailed, Unreachable
from concord.projects import Project, Run
from concord.sync import Client

DONE, REFUSED, USAGE, RUN_FAILED, NO_ANSWER, TIMED_OUT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
URL, TOKEN, PROJECT = "CONCORD_URL", "CONCORD_TOKEN", "CONCORD_PROJECT"


class WrongUsage(Exception):
    """What was typed cannot be done."""


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line; its exit code."""
    given = _parser().parse_args(words)
    try:
        return int(given.run(given) or DONE)
    except RunFailed as error:
        return _say(given, error, RUN_FAILED)
    except Unreachable as error:
        return _say(given, error, NO_ANSWER)
    except ConcordError as error:
        return _say(given, error, REFUSED)
    except TimeoutError as error:
        return _say(given, error, TIMED_OUT)
    except (WrongUsage, ValueError, LookupError, ImportError, OSError) as error:
        return _say(given, error, USAGE)
    except KeyboardInterrupt:
        return INTERRUPTED


def _say(given: argparse.Namespace, error: Exception, code: int) -> int:
    if given.json:
        names = ("status", "code", "message", "field", "row", "details", "errors")
        said = {name: getattr(error, name) for name in names if hasattr(error, name)}
        words = json.dumps(said or {"code": "usage", "message": str(error)}, default=str)
    else:
        words = f"concord: {error}"
        for more in _more(error):
            words += f"\n  {more}"
    sys.stderr.write(words + "\n")
    return code


def _more(error: Exception) -> Iterable[str]:
    """Each bad row or field of a refusal that names several."""
    details = getattr(error, "details", None)
    for one in details if isinstance(details, list) else ():
        if isinstance(one, Mapping) and "row" in one:
            yield f"row {one['row']}, {one.get('field', '')}: {one.get('message', '')}"
    for one in getattr(error, "errors", ()):
        yield f"{one.get('field', '')}: {one.get('message', '')}"


# --- who and where -------------------------------------------------------------------------------


def _credentials() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "concord" / "credentials.json"


def _client(given: argparse.Namespace) -> Client:
    file = _credentials()
    kept = json.loads(file.read_text()) if file.exists() else {}
    url = os.environ.get(URL) or kept.get("url")
    # A token belongs to the site it was made on.
    same = url is not None and url == kept.get("url")
    token = os.environ.get(TOKEN) or (kept.get("token") if same else None)
    if not url:
        raise WrongUsage(f"{URL} is not set: set it, or run `concord login`")
    if not token:
        raise WrongUsage(f"{TOKEN} is not set: set it, or run `concord login`")
    return Client(url, token, bars=not given.json)


def _project(given: argparse.Namespace, client: Client) -> Project:
    slug = given.project or os.environ.get(PROJECT)
    if not slug:
        raise WrongUsage(f"project: give -p, or set {PROJECT}")
    return client.project(slug)


def login(given: argparse.Namespace) -> None:
    url = given.url or os.environ.get(URL) or input("Address of the site: ").strip()
    shown = sys.stdin.isatty()
    token = (getpass.getpass("Token: ") if shown else sys.stdin.readline()).strip()
    with Client(url, token) as client:
        me = client.me()
    file = _credentials()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as kept:
        json.dump({"url": url, "token": token}, kept)
    _out(given, me, lambda: f"Signed in to {url} as {me.username}; kept in {file}.")


def logout(given: argparse.Namespace) -> None:
    _credentials().unlink(missing_ok=True)


def projects(given: argparse.Namespace) -> None:
    with _client(given) as client:
        _table(given, client.projects(), "slug", "name", "role")


# --- datasets ------------------------------------------------------------------------------------


def datasets_list(given: argparse.Namespace) -> None:
    with _client(given) as client:
        _table(given, _project(given, client).datasets.list(), "id", "kind", "state", "name")


def datasets_import(given: argparse.Namespace) -> None:
    settings: dict[str, Any] = dict(_pair(one, "--set") for one in given.set)
    if given.map:
        settings["mapping"] = dict(_pair(one, "--map", plain=True) for one in given.map)
    with _client(given) as client:
        project = _project(given, client)
        on_error = "skip" if given.skip_bad_rows else "refuse"
        if given.makes == "comparisons":
            done = project.comparisons.import_file(given.file, settings=settings, on_error=on_error)
            _out(given, done, lambda: f"{done.result['n_created']} comparisons imported")
            return
        made = project.datasets.import_file(
            given.file,
            given.name,
            makes=given.makes,
            overlap="skip" if given.skip_held_out else "refuse",
            settings=settings,
            on_error=on_error,
        )
        rows = ", ".join(f"{n} {split}" for split, n in made.counts["rows"].items())
        _out(given, made, lambda: f"{made.id}  {made.kind}  {made.name}: {rows}")


def datasets_export(given: argparse.Namespace) -> None:
    with _client(given) as client:
        path = _project(given, client).datasets.export(
            given.dataset, given.file, split=given.split, format=given.format, shape=given.shape
        )
        _out(given, {"file": str(path)}, lambda: str(path))


# --- runs ----------------------------------------------------------------------------------------


def runs_list(given: argparse.Namespace) -> None:
    filters = {
        name: value for name in ("kind", "state", "search") if (value := given.__dict__[name])
    }
    with _client(given) as client:
        found = [run.record for run in _project(given, client).runs.list(**filters)]
        _table(given, found, "id", "kind", "state", "step", "name")


def runs_launch(given: argparse.Namespace) -> None:
    config = _config(given.config) if given.config else {}
    for one in given.set:
        name, value = _pair(one, "--set")
        _place(config, name.split("."), value)
    inputs = dict(_pair(one, "--input", plain=True) for one in given.input)
    more = {name: value for name in ("queue", "priority") if (value := given.__dict__[name])}
    with _client(given) as client:
        run = _project(given, client).runs.launch(
            given.kind,
            given.name or given.kind,
            inputs=inputs,
            config=config,
            seed=given.seed,
            **more,
        )
        if given.wait:
            if not given.json:
                sys.stderr.write(f"launched {run.id}\n")
            run.wait(every=given.every)
        _run_out(given, run)


def runs_wait(given: argparse.Namespace) -> None:
    with _client(given) as client:
        run = _project(given, client).runs.get(given.id)
        run.wait(every=given.every, timeout=given.timeout)
        _run_out(given, run)


def runs_metrics(given: argparse.Namespace) -> None:
    with _client(given) as client:
        found = _project(given, client).runs.get(given.id).curves(*given.names, points=given.points)
        rows = found.rows()
        names = ["step", *found.series]
        if given.json:
            _json(rows)
            return
        _lines([names, *([_cell(row.get(name)) for name in names] for row in rows)])


def runs_stop(given: argparse.Namespace) -> None:
    with _client(given) as client:
        run = _project(given, client).runs.get(given.id)
        _run_out(given, run.cancel() if given.without_saving else run.stop())


def _run_out(given: argparse.Namespace, run: Run) -> None:
    _out(given, run.record, lambda: f"{run.id}  {run.record.kind}  {run.state}  {run.record.name}")


# --- models --------------------------------------------------------------------------------------


def models_list(given: argparse.Namespace) -> None:
    with _client(given) as client:
        found = list(
            _project(given, client).models.list(**({"kind": given.kind} if given.kind else {}))
        )
        _table(given, found, "id", "kind", "step", "status", "name")


def models_download(given: argparse.Namespace) -> None:
    with _client(given) as client:
        folder = _project(given, client).models.download(given.id, given.folder, part=given.part)
        _out(given, {"folder": str(folder)}, lambda: str(folder))


# --- everything else -----------------------------------------------------------------------------


def operations(given: argparse.Namespace) -> None:
    """From the site's own OpenAPI description, so of its version."""
    with _client(given) as client:
        paths = client.call("GET", "/openapi.json")["paths"]
    found = [
        {"method": method.upper(), "path": path.removeprefix("/api/v1"), "summary": said["summary"]}
        for path, item in paths.items()
        for method, said in item.items()
    ]
    wanted = [one for one in found if given.word.lower() in " ".join(one.values()).lower()]
    _table(given, wanted, "method", "path", "summary")


def call(given: argparse.Namespace) -> None:
    method = given.method.upper()
    values = dict(_pair(one, "KEY=VALUE") for one in given.values)
    asks = method in ("GET", "DELETE")
    with _client(given) as client:
        if given.output:
            if method != "GET":
                raise WrongUsage("--output: only of a GET")
            client.save(given.path, given.output, query=_query(values))
            _out(given, {"file": given.output}, lambda: given.output)
            return
        _json(
            client.call(
                method,
                given.path,
                query=_query(values) if asks else None,
                body=None if asks else values,
            )
        )


# --- what is typed and what is printed -----------------------------------------------------------


def _pair(text: str, option: str, *, plain: bool = False) -> tuple[str, Any]:
    """KEY=VALUE: a text; KEY:=JSON: a number, list, object, true, null."""
    name, mark, value = text.partition("=")
    if not mark or not name.rstrip(":"):
        raise WrongUsage(
            f"{option}: {text!r} is not KEY=VALUE" + ("" if plain else " or KEY:=JSON")
        )
    if plain or not name.endswith(":"):
        return name, value
    try:
        return name[:-1], json.loads(value)
    except ValueError as error:
        raise WrongUsage(f"{option}: the value of {name[:-1]} is not JSON: {error}") from None


def _config(file: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(file).read_text())
    except ValueError as error:
        raise WrongUsage(f"--config: {file} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise WrongUsage(f"--config: {file} holds no object")
    return found


def _query(values: Mapping[str, Any]) -> dict[str, str]:
    """As an address has them: true and null in JSON's words."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }


def _place(config: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        config = config.setdefault(name, {})
    config[path[-1]] = value


def _json(value: Any) -> None:
    def plain(one: Any) -> Any:
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            return {
                f.name: getattr(one, f.name) for f in dataclasses.fields(one) if f.name != "extra"
            }
        if isinstance(one, datetime):
            return one.isoformat()
        return str(one)

    sys.stdout.write(json.dumps(value, indent=1, default=plain, ensure_ascii=False) + "\n")


def _out(given: argparse.Namespace, value: Any, words: Callable[[], str]) -> None:
    if given.json:
        _json(value)
    else:
        sys.stdout.write(words() + "\n")


def _table(given: argparse.Namespace, rows: Sequence[Any], *names: str) -> None:
    if given.json:
        _json(rows)
        return
    cells = [
        [_cell(row[name] if isinstance(row, dict) else getattr(row, name)) for name in names]
        for row in rows
    ]
    _lines([list(names), *cells])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _lines(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print JSON")
    of_project = argparse.ArgumentParser(add_help=False, parents=[common])
    of_project.add_argument("-p", "--project", metavar="SLUG", help=f"or {PROJECT}")
    parser = argparse.ArgumentParser(
        prog="concord",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        under: Any, name: str, run: Callable[[argparse.Namespace], None], words: str, parent: Any
    ) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = under.add_parser(
            name, help=words, description=words, parents=[parent]
        )
        made.set_defaults(run=run)
        return made

    def group(name: str, words: str) -> Any:
        return top.add_parser(name, help=words).add_subparsers(required=True, metavar="COMMAND")

    one = add(top, "login", login, "keep an address and a token for your user alone", common)
    one.add_argument("url", nargs="?", help="of the site; the token is asked for")
    add(top, "logout", logout, "forget them", common)
    add(top, "projects", projects, "the projects you are in", common)
    _datasets_parser(add, group("datasets", "import, list and export datasets"), of_project)
    _runs_parser(add, group("runs", "launch runs and watch them"), of_project)
    models = group("models", "list and download models")
    one = add(models, "list", models_list, "newest first", of_project)
    one.add_argument("--kind", help="of its run")
    one = add(models, "download", models_download, "a model's files, in a folder", of_project)
    one.add_argument("id")
    one.add_argument("folder", nargs="?", default=".")
    one.add_argument("--part", default="merged", help="merged, or adapter of a LoRA")
    one = add(top, "operations", operations, "what `call` can do on this site", common)
    one.add_argument("word", nargs="?", default="", help="only those that have it")
    one = add(top, "call", call, "any operation of the API, as JSON", common)
    one.add_argument("method", metavar="METHOD", help="GET, POST …")
    one.add_argument("path", help="such as /projects/arguments/fleet")
    one.add_argument("values", nargs="*", metavar="KEY=VALUE", help="KEY:=JSON where it is no text")
    one.add_argument("--output", metavar="FILE", help="write the answer of a GET to a file")
    return parser


def _datasets_parser(add: Any, under: Any, parent: argparse.ArgumentParser) -> None:
    add(under, "list", datasets_list, "newest first", parent)
    one = add(under, "import", datasets_import, "check a file, then import it", parent)
    one.add_argument("file")
    one.add_argument("--name", default="", help="of the dataset; else the file's")
    one.add_argument(
        "--makes",
        default="preferences",
        choices=(
            *("preferences", "demonstrations", "prompts", "unpaired", "stepwise", "comparisons"),
        ),
        help="comparisons are voted on; the others are datasets (default: preferences)",
    )
    one.add_argument("--map", action="append", default=[], metavar="FIELD=COLUMN")
    one.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    one.add_argument("--skip-bad-rows", action="store_true", help="import the others")
    one.add_argument(
        "--skip-held-out", action="store_true", help="leave out what other datasets hold out"
    )
    one = add(under, "export", datasets_export, "write a split to a file", parent)
    one.add_argument("dataset", metavar="ID")
    one.add_argument("file")
    one.add_argument("--split", default="", help="train, dev, public_test …")
    one.add_argument("--format", default="jsonl", choices=("jsonl", "parquet", "csv", "zip"))
    one.add_argument("--shape", default="", help="conversational, standard, kto, votes …")


def _runs_parser(add: Any, under: Any, parent: argparse.ArgumentParser) -> None:
    one = add(under, "list", runs_list, "newest first", parent)
    for name in ("kind", "state", "search"):
        one.add_argument(f"--{name}")
    one = add(under, "launch", runs_launch, "start a run", parent)
    one.add_argument("kind", help="sft, reward, dpo, ppo, grpo, evaluate …")
    one.add_argument("--name", default="")
    one.add_argument(
        "--input", action="append", default=[], metavar="ROLE=REF", help="data=snapshot:ID …"
    )
    one.add_argument("--config", metavar="FILE", help="JSON of the recipe")
    one.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting: preset=lora, epochs:=1, server.url=…",
    )
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--queue", help="the machine class")
    one.add_argument("--priority", choices=("low", "normal", "high"))
    one.add_argument("--wait", action="store_true", help="until it has ended")
    one.add_argument("--every", type=float, default=5.0, metavar="SECONDS")
    one = add(under, "wait", runs_wait, "until a run has ended", parent)
    one.add_argument("id")
    one.add_argument("--every", type=float, default=5.0, metavar="SECONDS")
    one.add_argument("--timeout", type=float, metavar="SECONDS")
    one = add(under, "metrics", runs_metrics, "a row a step", parent)
    one.add_argument("id")
    one.add_argument("names", nargs="*", metavar="METRIC")
    one.add_argument("--points", type=int, default=2000, help="at most, of each")
    one = add(under, "stop", runs_stop, "save a checkpoint and finish early", parent)
    one.add_argument("id")
    one.add_argument("--without-saving", action="store_true", help="cancel it instead")
