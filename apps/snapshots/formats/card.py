"""The dataset card: what a folder holds, in the YAML that Hugging Face reads and in words.

Values are written as JSON, which is YAML, so no text of a licence or a title can break the header.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from apps.common.row_files import holds_json
from workers.contract.jobs import PEOPLE

# How licences are named here → how Hugging Face names them.
_LICENCES = {
    "apache-2.0": "apache-2.0",
    "apache 2.0": "apache-2.0",
    "cc0-1.0": "cc0-1.0",
    "cc-by-4.0": "cc-by-4.0",
    "cc by 4.0": "cc-by-4.0",
    "cc-by-sa-4.0": "cc-by-sa-4.0",
    "cc-by-nc-4.0": "cc-by-nc-4.0",
    "cc-by-nc-sa-4.0": "cc-by-nc-sa-4.0",
    "cc-by-3.0": "cc-by-3.0",
    "mit": "mit",
    "odc-by": "odc-by",
    "bsd-3-clause": "bsd-3-clause",
}
_DTYPES = {"double": "float64", "extension<arrow.json>": "json"}
IMAGES = "images"  # the column
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)
_TAGS = {
    "preferences": ["preference", "human-feedback", "trl"],
    "unpaired": ["preference", "human-feedback", "kto", "trl"],
    "demonstrations": ["instruction-tuning", "trl"],
    "prompts": ["prompts", "trl"],
    "stepwise": ["process-reward", "stepwise-supervision", "trl"],
    "pairs": ["pairs"],
}
COLUMNS = {
    "prompt": "what was asked",
    "chosen": "the answer that was preferred",
    "rejected": "the other answer",
    "messages": "the conversation, ending with the answer to learn",
    "images": "the images of the prompt, in the order in which its parts name them",
    "tools": "JSON: the schemas of the tools that were offered, `[]` where none were",
    "completion": "an answer",
    "completions": "the steps that followed, in order",
    "labels": "whether each step is right; null where nobody marked it",
    "roles": "who each step is of: assistant, tool or user",
    "label_probability": "P(chosen is preferred), the target of a soft loss; 0.5 for a tie",
    "label": "whether the answer is wanted",
    "probability": "share of the votes for `chosen`; ties and both bad count one half",
    "responses": "the answers, best first",
    "scores": "pairs won minus pairs lost by each of `responses`",
    "cyclic": "true where results contradict each other, so no order keeps them all",
    "complete": "true where each answer beat the next one directly: no other order fits",
    "comparisons": "numbers of the comparisons behind the order",
    "weight": "what the row counts in the loss",
    "confidence": "how sure the decision is: the winner's share of the votes, or its posterior",
    "votes": "how many votes decided it",
    "group": "what splits go by: a topic, a debate or the prompt",
    "slice": "why the pair was chosen to be labeled: measuring and training were drawn at random, "
    "selected was chosen by a model; empty where all pairs went to people",
    "inclusion_probability": "with which the pair was drawn into its slice: an estimate over "
    "several slices weighs by 1 ÷ it; empty where no estimate may use the row",
    "cluster": "rows with one cluster are not independent: resample them together",
    "cluster_ids": "keys of both answers, the chosen one first: an answer stands in many rows",
    "chosen_side": "a or b: which answer of the comparison was chosen, to look at order as a leak",
    "sources": "which model or file each answer is from, the chosen one first; empty where nobody "
    "knows, and no name where a person wrote it",
    "decided_at": "the day of the newest vote behind the row, or of the ruling; ISO 8601, UTC",
    "comparison": "number of the comparison in Concord",
    "external_id": "the id that the row was imported with",
    "metadata": "JSON: the columns that the row was imported with and that mean nothing to Concord",
    "vote": "number of the vote in Concord",
    "text": "number of the written text in Concord",
    "version": "of the written text: 1 as it was first submitted",
    "edited_from": "where a reviewer edited the text: who wrote the version before, a pseudonym",
    "reviewed": "yes where another person accepted the text, no where it was accepted unread",
    "batch": "the writing work that the text was asked for in",
    "annotator": "a pseudonym; in pairs filled only where a row is one held-out person's vote",
    "part": "id of the dataset that the row of a mixture is from",
    "annotators": "who voted on the row, by the pseudonyms of this dataset",
    "annotator_votes": "what each of `annotators` voted for: chosen, rejected, tie or both_bad",
    "choice": "a, b, tie or both_bad, in the comparison's own order",
    "voted_for": "chosen, rejected, tie or both_bad, in the words of the other forms",
    "side": "in votes: where the preferred answer stood on screen, empty when unknown; in single "
    "answers: a or b, in the comparison's own order",
    "strength": "how strongly: in votes 1 slightly and 2 much, in pairs its mean over the votes, "
    "each person's scale made even; empty where nobody graded",
    "reasons": "tags that the annotator chose",
    "flags": "what the annotator reported",
    "guideline_version": "the instructions that the vote was cast under",
    "active_ms": "active time on the pair, milliseconds",
    "revision": "1 for a first vote, more for a changed one",
    "cast_at": "when, ISO 8601",
    "labelled_by": "people, or the model that labelled the row: `ai:` and its name",
    "principle": "by which the model labelled the row; empty where people did",
    "source": "where the text comes from",
    "licence": "of the text",
}
SPLITS = {
    "train": "to train on",
    "smoke": "a few training rows, to try a program with",
    "dev": "steers training: early stopping, choice of settings",
    "public_test": "to measure on; share nothing with training",
    "private_test": "to measure on once; kept back",
    "human_audit": "for people to look at; kept back",
    "heldout_groups": "whole groups that no training row comes from",
    "heldout_annotators": "votes of people behind no training row, one row a vote",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """What a card describes. `splits`: rows by name, in order; `columns`: names in order, with
    their types in `schema`; `labelled_by`: training rows by who labelled them, empty where all are
    people's."""

    title: str
    kind: str
    form: str
    splits: Mapping[str, int]
    columns: Sequence[str]
    schema: pa.Schema
    licences: Sequence[str] = ()
    languages: Sequence[str] = ()
    warnings: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = field(default_factory=tuple)
    labelled_by: Mapping[str, int] = field(default_factory=dict)

    def path_of(self, split: str) -> str:
        """The file of a split; images are in Parquet alone."""
        return f"parquet/{split}.parquet" if IMAGES in self.schema.names else f"{split}.jsonl"


def card_text(folder: Folder) -> str:
    """README.md of the folder."""
    return f"{_header(folder)}\n{_body(folder)}"


def licence_fields(names: Sequence[str]) -> dict[str, Any]:
    """As Hugging Face has them in the header."""
    licences = sorted({_LICENCES.get(name.strip().lower(), "other") for name in names})
    fields: dict[str, Any] = {}
    if licences:
        fields["license"] = licences[0] if len(licences) == 1 else licences
    if "other" in licences:
        fields["license_name"] = ", ".join(names)
    return fields


def header_text(fields: Mapping[str, Any]) -> str:
    lines = (f"{name}: {json.dumps(v, ensure_ascii=False)}\n" for name, v in fields.items())
    return f"---\n{''.join(lines)}---\n"


def _header(folder: Folder) -> str:
    fields = {"pretty_name": folder.title} | licence_fields(folder.licences)
    if folder.languages:
        fields["language"] = list(folder.languages)
    fields["task_categories"] = ["text-generation"]
    fields["tags"] = _tags(folder)
    fields["size_categories"] = [_size(sum(folder.splits.values()))]
    fields["configs"] = [
        {
            "config_name": "default",
            "data_files": [{"split": name, "path": folder.path_of(name)} for name in folder.splits],
        }
    ]
    if any(holds_json(column.type) or column.name == IMAGES for column in folder.schema):
        # What readers would guess from the first rows of each file would not fit all of them.
        fields["dataset_info"] = {
            "features": [
                {"name": column.name}
                | ({"list": "image"} if column.name == IMAGES else _feature(column.type))
                for column in folder.schema
            ]
        }
    return header_text(fields)


def _feature(of: pa.DataType) -> dict[str, Any]:
    """A column's type as `datasets` names it."""
    if pa.types.is_list(of):
        inner = _feature(of.value_type)
        return {"list": inner.get("dtype") or inner.get("struct") or inner}
    if pa.types.is_struct(of):
        return {"struct": [{"name": one.name} | _feature(one.type) for one in of]}
    return {"dtype": _DTYPES.get(str(of), str(of))}


def _tags(folder: Folder) -> list[str]:
    tags = list(_TAGS[folder.kind])
    models = set(folder.labelled_by) - {PEOPLE}
    if models and PEOPLE not in folder.labelled_by:
        tags.remove("human-feedback")
    return [*tags, "ai-feedback"] if models else tags


def _body(folder: Folder) -> str:
    parts = [f"# {folder.title}\n", f"{folder.form}\n"]
    rows = [f"| {name} | {n:,} | {SPLITS.get(name, '')} |" for name, n in folder.splits.items()]
    parts.append(_table("Splits", ("split", "rows", "for"), rows))
    known = [f"| `{name}` | {COLUMNS.get(name, '')} |" for name in folder.columns]
    parts.append(_table("Columns", ("column", "meaning"), known))
    if folder.facts:
        facts = [f"| {name} | {_cell(words)} |" for name, words in folder.facts]
        parts.append(_table("How it was made", ("", ""), facts))
    licences = ", ".join(folder.licences) or "not stated"
    parts.append(f"## Licences\n\nOf the texts: {licences}.\n")
    warned = "".join(f"- {text}\n" for text in folder.warnings) or "None.\n"
    parts.append(f"## Warnings\n\n{warned}")
    if folder.notes:
        parts.append("## Notes\n\n" + "".join(f"- {text}\n" for text in folder.notes))
    return "\n".join(parts)


def _table(title: str, names: Sequence[str], rows: Sequence[str]) -> str:
    head = f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n"
    return f"## {title}\n\n{head}" + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _size(rows: int) -> str:
    return next((name for most, name in _SIZES if rows < most), "10M<n<100M")
