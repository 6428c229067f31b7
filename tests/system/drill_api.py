"""Requests made from the API's own description, as every role: none may end in a 500.

schemathesis sends what the schema allows and what it does not, to every operation, on a site with
people, comparisons and votes. An answer of 5xx, other than a 503 that says what is away, is a
fault of ours; so is a site that is not well afterwards.

Run: python -m tests.system.drill_api SCHEMATHESIS [--examples 12]

`tests/web/test_drawn_requests.py` makes few of these requests, in seconds (`make test-api`).
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.system.a_site import Site, temporary_folder

ROLES = {"Ana": "annotator", "Rita": "reviewer", "Emil": "engineer", "Ada": "admin"}
OUTSIDER = "Olga"
# It would answer everybody 401 from then on.
LEFT_OUT = r"/(account|me)/(tokens|password)"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("schemathesis", type=Path, help="the program")
    arguments.add_argument("--examples", type=int, default=12, help="of each operation")
    arguments.add_argument("--roles", nargs="*", default=[*ROLES, OUTSIDER, ""])
    chosen = arguments.parse_args()
    faults = []
    with temporary_folder() as folder, Site(folder / "var") as site:
        site.connect()
        keys = peopled()
        print(f"{'role':<12}{'requests':>10}  answers")  # noqa: T201
        for name in chosen.roles:
            report = folder / f"{name or 'nobody'}.ndjson"
            fuzzed(
                chosen.schemathesis.absolute(),
                site.url,
                keys.get(name),
                report,
                chosen.examples,
            )
            answers, bad = read(report)
            told = ", ".join(f"{n} × {status}" for status, n in sorted(answers.items()))
            who = ROLES.get(name, "outsider" if name else "nobody")
            print(f"{who:<12}{sum(answers.values()):>10}  {told}", flush=True)  # noqa: T201
            faults += [f"{who}: {one}" for one in bad]
            if not answers:
                faults.append(f"{who}: no request was made")
        site.wait_until_well(60)
        faults += [f"log: {line}" for line in tracebacks(site)]
    print("\n".join(["", *(faults or ["no answer was a 500"])]))  # noqa: T201
    sys.exit(bool(faults))


def peopled() -> dict[str, str]:
    """A project with comparisons and its people; each one's token with every scope."""
    from apps.accounts.models import SCOPES
    from apps.accounts.services import token_create
    from benchmarks.load import projects
    from tests.people import person_make

    made = projects.project_make("arguments", pairs=200, annotators=2)
    people = {name: person_make(name, made.project, role) for name, role in ROLES.items()}
    people[OUTSIDER] = person_make(OUTSIDER)
    return {
        name: token_create(user=user, name="drill", scopes=list(SCOPES), days=1)[1]
        for name, user in people.items()
    }


def fuzzed(
    program: Path,
    url: str,
    token: str | None,
    report: Path,
    examples: int,
    *,
    seconds: int = 0,
) -> None:
    """One after the other, so that a person's limit is seldom met. With `seconds` for so long
    at most, and only what is drawn."""
    words = [
        str(program),
        "run",
        f"{url}/api/v1/openapi.json",
        "--checks",
        "not_a_server_error",
        "--max-examples",
        str(examples),
        "--seed",
        "16",
        "--no-shrink",
        "--continue-on-failure",
        "--exclude-path-regex",
        LEFT_OUT,
        "--suppress-health-check",
        "all",
        "--request-timeout",
        "60",
        "--workers",
        "2",
        "--no-color",
        "--warnings",
        "off",
        "--report",
        "ndjson",
        "--report-ndjson-path",
        str(report),
        "--output-sanitize",
        "false",
        "--phases",
        "fuzzing" if seconds else "examples,coverage,fuzzing",
        *(["--max-time", str(seconds)] if seconds else []),
    ]
    if token:
        words += ["--header", f"Authorization: Bearer {token}"]
    done = subprocess.run(words, cwd=report.parent, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"schemathesis ended with {done.returncode}:\n{done.stdout[-3000:]}")


def read(report: Path) -> tuple[Counter[int], list[str]]:
    """How often each status was answered, and the requests that were answered by a bad one."""
    answers: Counter[int] = Counter()
    bad: list[str] = []
    for line in report.read_text().splitlines():
        for exchange in exchanges(json.loads(line)):
            status = int(exchange["response"]["status_code"])
            answers[status] += 1
            if status >= 500 and status != 503:
                request = exchange["request"]
                bad.append(f"{status} {request['method']} {request['uri']}")
    return answers, sorted(set(bad))


def exchanges(node: object) -> list[dict]:
    """Every request with its answer, wherever it stands in an event of the report."""
    if isinstance(node, list):
        return [one for child in node for one in exchanges(child)]
    if not isinstance(node, dict):
        return []
    answer = node.get("response")
    if isinstance(node.get("request"), dict) and "status_code" in (answer or {}):
        return [node]
    return [one for child in node.values() for one in exchanges(child)]


def tracebacks(site: Site) -> list[str]:
    """What the web servers logged as errors of their own, with where each was raised."""
    found = []
    for log in (site.var / "logs").glob("web*.log"):
        lines = log.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if "Internal Server Error" in line:
                before = [text for text in lines[max(0, number - 90) : number] if " apps/" in text]
                raised = [text for text in lines[number - 8 : number + 3] if "Error" in text]
                found += [line, *(f"  {text}" for text in (before[-3:] + raised))]
    return found


if __name__ == "__main__":
    main()
