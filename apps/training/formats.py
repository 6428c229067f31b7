"""A model for other programs: the card in its README, and the lines that load it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.urls import reverse
from django.utils.text import slugify

from apps.common.registry import CardLine
from apps.snapshots.formats.card import header_text, licence_fields
from apps.training.models import Checkpoint, Run
from apps.training.selectors.cards import UNKNOWN, ModelCard
from workers.artifacts import ADAPTER, MERGED

_LOADERS = {
    "reward": "AutoModelForSequenceClassification",
    "steps": "AutoModelForTokenClassification",
    "encoder": "AutoModel",
}
_PIPELINES = {
    "policy": "text-generation",
    "reward": "text-classification",
    "steps": "token-classification",
}
_ASKED = '[{"role": "user", "content": "…"}]'
_SAID = '[{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]'


def purpose_of(run: Run) -> str:
    """policy, reward, steps (a process reward model) or encoder: who loads it."""
    if run.kind in Run.REWARD_KINDS:
        return "reward"
    if run.kind == Run.Kind.PROCESS_REWARD:
        return "steps"
    return "encoder" if run.kind == Run.Kind.REGISTER_ENCODER else "policy"


def folder_name(model: Checkpoint, part: str = MERGED) -> str:
    """What a download unpacks to."""
    name = f"{slugify(model.run.name)[:60] or model.pk}-step-{model.step}"
    return f"{name}-{ADAPTER}" if part == ADAPTER else name


def python_lines(card: ModelCard, part: str = MERGED, *, member: str = "") -> str:
    """Three or four lines that load the unpacked folder and ask it. Of an ensemble its `member`."""
    purpose, folder = purpose_of(card.model.run), folder_name(card.model, part)
    if part == ADAPTER:
        base = _below(card)
        loader = _LOADERS.get(purpose, "AutoModelForCausalLM")
        more = ", num_labels=1" if purpose in ("reward", "steps") else ""
        return (
            "from peft import PeftModel\n"
            f"from transformers import {loader}\n"
            f'base = {loader}.from_pretrained("{base}", dtype="auto"{more})\n'
            f'model = PeftModel.from_pretrained(base, "{folder}")'
        )
    if purpose == "policy":
        return (
            "from transformers import pipeline\n"
            f'chat = pipeline("text-generation", "{folder}", dtype="auto")\n'
            'said = chat([{"role": "user", "content": "…"}], max_new_tokens=256, do_sample=False)\n'
            'print(said[0]["generated_text"][-1]["content"])'
        )
    loader = _LOADERS[purpose]
    folder = f"{folder}/{member}" if member else folder
    lines = [
        f"from transformers import AutoTokenizer, {loader}",
        f'tokenizer = AutoTokenizer.from_pretrained("{folder}")',
        f'model = {loader}.from_pretrained("{folder}", dtype="auto")',
    ]
    if purpose == "reward":
        asked = 'tokenizer.apply_chat_template({}, return_tensors="pt", return_dict=True)'
        lines.append(f"print(model(**{asked.format(_SAID)}).logits)")
    if purpose == "steps":  # the last token of the text is the end of its step
        lines += [
            f"asked = tokenizer.apply_chat_template({_ASKED}, add_generation_prompt=True, "
            "tokenize=False)",
            'ids = tokenizer(asked + "a step\\n", add_special_tokens=False, return_tensors="pt")',
            "print(model(**ids).logits[0, -1].sigmoid())",
        ]
    return "\n".join(lines)


def serve_line(card: ModelCard, part: str = MERGED) -> str:
    """`vllm serve` for a policy; empty for what answers no prompt."""
    if purpose_of(card.model.run) != "policy":
        return ""
    folder = folder_name(card.model, part)
    if part == ADAPTER:
        rank = int(card.settings.get("lora_rank") or 0)
        more = f" --max-lora-rank {rank}" if rank > 16 else ""  # vLLM's default
        return f"vllm serve {_below(card)} --enable-lora{more} --lora-modules {folder}=./{folder}"
    return f"vllm serve ./{folder} --served-model-name {folder}"


def _below(card: ModelCard) -> str:
    """The model that its adapters go on: an id of a hub, or the folder of a download."""
    return card.hub_base or (f"./{folder_name(card.start)}" if card.start else "BASE")


# The card.


def readme_text(card: ModelCard, part: str = MERGED, *, member: str = "") -> str:
    """README.md of a download."""
    lines = python_lines(card, part, member=member)
    use = f"## How to load it\n\n```python\n{lines}\n```\n"
    if served := serve_line(card, part):
        use += f"\n```sh\n{served}\n```\n"
    return f"{header_text(_header(card, part))}\n# {_plain(card.title)}\n\n{card_body(card)}\n{use}"


def card_body(card: ModelCard) -> str:
    """What a model is, what it was made of and how it was judged, in Markdown: from rows alone,
    each with the run or hash that it is from, and its page. What another project had is named
    without a link."""
    model, run = card.model, card.model.run
    of_run = _link(f"run {run.pk}", "training:run", run.project.slug, run.pk)
    facts = [
        Row("Model", f"{model.pk} (SHA-256 of the files here: {model.sha256})", _model_link(model)),
        Row(
            "Made by",
            f"{run.get_kind_display()}, run {run.pk}, seed {run.seed}, "
            f"code {run.code_version or UNKNOWN}",
            of_run,
        ),
        Row("Base", card.base),
        Row("Licence of the base", card.licence),
        Row("Status", model.get_status_display()),
    ]
    data = [
        Row(
            one.name,
            f"{one.get_kind_display()}, licences of its texts: "
            f"{', '.join(licences) or UNKNOWN}, SHA-256 {one.sha256}",
            _link("dataset", "snapshots:detail", run.project.slug, one.pk)
            if one.project_id == run.project_id
            else "",
        )
        for one, licences in card.data
    ]
    history = [
        Row(
            f"{one.run.name}, step {one.step:,}",
            f"{one.run.get_kind_display()}, SHA-256 {one.sha256}",
            _model_link(one) if one.project_id == run.project_id else "",
        )
        for one in card.history
    ]
    parts = [
        ("What it is", facts),
        ("Data", data),
        ("Models before it, the nearest first", history),
        ("Settings, the others at their defaults", _shown(card.settings, of_run)),
        ("Measured at this step, in training", _shown(card.metrics, of_run)),
        *_later(card.lines),
    ]
    return "\n".join(_listed(title, rows) for title, rows in parts if rows)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a card; `source` is a link in Markdown."""

    name: str
    words: str
    source: str = ""


def _later(lines: Sequence[CardLine]) -> list[tuple[str, list[Row]]]:
    """What later apps know, by the headings of their lines, in their order."""
    parts: dict[str, list[Row]] = {}
    for one in lines:
        shown = one.source or "page"
        source = f"[{_plain(shown)}]({_address(one.path)})" if one.path else _plain(one.source)
        parts.setdefault(one.part, []).append(Row(one.name, one.words, source))
    return list(parts.items())


def _link(words: str, url_name: str, *args: str) -> str:
    return f"[{_plain(words)}]({_address(reverse(url_name, args=args))})"


def _model_link(model: Checkpoint) -> str:
    return _link("page", "training:model", model.run.project.slug, model.pk)


def _address(path: str) -> str:
    return settings.SITE_URL.rstrip("/") + path


def _shown(values: Mapping[str, Any], source: str) -> list[Row]:
    return [
        Row(name, json.dumps(value, ensure_ascii=False), source) for name, value in values.items()
    ]


def _listed(title: str, rows: Sequence[Row]) -> str:
    """Names and texts of people stay on their line and are no Markdown."""
    lines = (
        f"- **{_plain(one.name)}**: {_plain(one.words)}{f' ({one.source})' if one.source else ''}\n"
        for one in rows
    )
    return f"## {title}\n\n{''.join(lines)}"


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#$])", r"\\\1", " ".join(text.split()))


def _header(card: ModelCard, part: str) -> dict[str, Any]:
    run = card.model.run
    fields = licence_fields([card.licence]) if card.licence != UNKNOWN else {}
    if card.hub_base:
        fields["base_model"] = card.hub_base
    fields["library_name"] = "peft" if part == ADAPTER else "transformers"
    if pipeline := _PIPELINES.get(purpose_of(run)):
        fields["pipeline_tag"] = pipeline
    fields["tags"] = [run.kind]
    if results := [_result(one) for one in card.lines if one.result]:
        fields["model-index"] = [{"name": card.title, "results": results}]
    return fields


def _result(line: CardLine) -> dict[str, Any]:
    """A measured figure as Hugging Face has evaluation results in the header of a card."""
    found = line.result or {}
    return {
        "task": {"type": "text-generation"},
        "dataset": {
            "name": found["dataset"],
            "type": found["dataset_type"],
            "revision": found["dataset_sha256"],
        },
        "metrics": [{"type": found["metric"], "name": line.name, "value": found["value"]}],
        "source": {"name": line.source, "url": _address(line.path)},
    }
