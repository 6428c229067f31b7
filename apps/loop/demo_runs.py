"""The second project of the demo: runs of agents and images to compare. All of it ours, CC0.

Six tasks over a folder of small files, each done twice: once as it should be, once with a fault
that people should find (the wrong file, a step too many, a failure that is passed over).
"""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.services import membership_set
from apps.labeling.models import Task
from apps.labeling.services import comparisons_import, project_create

SLUG, NAME = "agents-and-images", "Agents and images"
DESCRIPTION = (
    "Two runs of an agent on one task, and two answers about one image. Small and made up."
)
LICENCE = "CC0-1.0"
FILES = {
    "north.txt": "rain 12\nsun 4\nrain 7",
    "south.txt": "sun 31\nsun 18",
    "notes.txt": "north was measured twice",
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": words,
            "parameters": {"type": "object", "properties": properties},
        },
    }
    for name, words, properties in (
        ("list_files", "Names of the files in the folder.", {}),
        ("read_file", "The text of a file.", {"name": {"type": "string"}}),
        ("add", "The sum of some numbers.", {"numbers": {"type": "array"}}),
    )
]
PEOPLE_OF_IT = {"ana": Role.ANNOTATOR, "rita": Role.REVIEWER, "emil": Role.ENGINEER}


def _call(tool: str, **arguments: Any) -> dict[str, Any]:
    asked = {"type": "function", "function": {"name": tool, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [asked]}


def _read(name: str) -> list[dict[str, Any]]:
    known = name in FILES
    result = {"role": "tool", "name": "read_file", "content": FILES.get(name, "no such file")}
    return [_call("read_file", name=name), result | ({} if known else {"error": True})]


def _added(*numbers: int) -> list[dict[str, Any]]:
    result = {"role": "tool", "name": "add", "content": str(sum(numbers))}
    return [_call("add", numbers=list(numbers)), result]


def _said(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]


_LISTED = [
    _call("list_files"),
    {"role": "tool", "name": "list_files", "content": "\n".join(FILES)},
]
# (what is asked, the run that does it, the run that does not)
RUNS = (
    (
        "How much rain was measured in the north?",
        [*_read("north.txt"), *_added(12, 7), *_said("19 of rain.")],
        [*_read("south.txt"), *_added(31, 18), *_said("49 of rain.")],
    ),
    (
        "Was anything measured twice?",
        [*_read("notes.txt"), *_said("Yes: the north was.")],
        [*_read("north.txt"), *_read("south.txt"), *_said("No, nothing.")],
    ),
    (
        "How much sun was there in the south?",
        [*_read("south.txt"), *_added(31, 18), *_said("49 of sun.")],
        [*_read("south.txt"), *_read("south.txt"), *_read("south.txt"), *_said("49 of sun.")],
    ),
    (
        "How much rain fell in the west?",
        [*_read("west.txt"), *_said("There is no file about the west, so I cannot say.")],
        [*_read("west.txt"), *_said("No rain fell in the west.")],
    ),
    (
        "Which file says most?",
        [
            *_read("north.txt"),
            *_read("south.txt"),
            *_read("notes.txt"),
            *_said("north.txt, with three lines."),
        ],
        [*_said("notes.txt, as its name says.")],
    ),
    (
        "Add up all the sun.",
        [*_read("north.txt"), *_read("south.txt"), *_added(4, 31, 18), *_said("53 of sun.")],
        [*_read("north.txt"), *_added(12, 4, 7), *_said("23 of sun.")],
    ),
)
# (colours of three bars from left to right, two answers, the better one first)
PICTURES = (
    ((200, 60, 60), (60, 160, 90), (60, 90, 200), "Red, green and blue.", "Red, blue and green."),
    ((60, 90, 200), (60, 90, 200), (200, 60, 60), "Two are blue, one is red.", "All are blue."),
    ((90, 90, 90), (200, 200, 200), (20, 20, 20), "The last is the darkest.", "The first is."),
    ((230, 190, 40), (200, 60, 60), (230, 190, 40), "The middle one is red.", "None is red."),
    ((60, 160, 90), (60, 160, 90), (60, 160, 90), "All three are green.", "They differ."),
    ((20, 20, 20), (200, 60, 60), (200, 200, 200), "Black, red, light grey.", "Black and white."),
)
ASKED = "What are the colours of the three bars, from left to right?"


def picture(number: int, *colours: tuple[int, int, int]) -> str:
    """A data URL of three bars; the heights of the bars differ from picture to picture."""
    pixels = np.full((180, 300, 3), 250, dtype=np.uint8)
    for place, colour in enumerate(colours):
        top = 20 + (37 * (number + 1) * (place + 2)) % 110
        pixels[top:, 100 * place + 15 : 100 * place + 85] = colour
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "PNG")
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"


def rows() -> list[dict[str, Any]]:
    """Every second pair has its better answer as B."""
    made: list[dict[str, Any]] = []
    for number, (asked, good, bad) in enumerate(RUNS):
        prompt = [{"role": "user", "content": asked}, *_LISTED]
        made.append({"prompt": prompt, "tools": TOOLS, **_sides(number, good, bad)})
    for number, (*colours, good_words, bad_words) in enumerate(PICTURES):
        shown = f"{ASKED} ![three bars]({picture(number, *colours)})"
        prompt = [{"role": "user", "content": shown}]
        made.append({"prompt": prompt, **_sides(number, good_words, bad_words)})
    return [row | {"licence": LICENCE, "source": "Concord's demo"} for row in made]


def _sides(number: int, good: Any, bad: Any) -> dict[str, Any]:
    a, b = (good, bad) if number % 2 == 0 else (bad, good)
    return {"response_a": a, "response_b": b}


def runs_project(people: dict[str, User]) -> Project | None:
    """The project with its pairs, to be labeled by hand; None where it is there already."""
    project = Project.objects.filter(slug=SLUG).first()
    if project is not None and Task.objects.filter(project=project).exists():
        return None
    ada = people["ada"]
    if project is None:
        project = project_create(
            slug=SLUG,
            name=NAME,
            description=DESCRIPTION,
            created_by=ada,
            overlap=2,
            least_votes=2,
            least_agreeing=2,
            ask_steps=True,
        )
    for name, role in PEOPLE_OF_IT.items():
        if not Membership.objects.filter(project=project, user=people[name]).exists():
            membership_set(project=project, user=people[name], role=role)
    comparisons_import(project=project, rows=rows(), batch="demo")
    return project
