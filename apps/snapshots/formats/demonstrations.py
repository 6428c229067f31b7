"""Plain strings of demonstrations and prompts, whose frozen form is conversational."""

from apps.snapshots.assembling.rows import Row
from apps.snapshots.formats.pairs import answer_string, prompt_string


def completion_row(row: Row) -> Row:
    """TRL's standard prompt–completion form."""
    *asked, answered = row["messages"]
    rest = {name: value for name, value in row.items() if name != "messages"}
    return {"prompt": prompt_string(asked), "completion": answer_string([answered])} | rest


def prompt_only_row(row: Row) -> Row:
    return row | {"prompt": prompt_string(row["prompt"])}
