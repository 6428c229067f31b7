"""How a model leaves: what can be downloaded, the lines that load it, its card."""

from dataclasses import dataclass

from django.utils.safestring import SafeString

from apps.labeling.rendering import text_html
from apps.training.formats import card_body, folder_name, python_lines, serve_line
from apps.training.models import Checkpoint
from apps.training.selectors.cards import model_card
from apps.training.services.downloads import member_of, parts_of
from workers.artifacts import ADAPTER, MERGED


@dataclass(frozen=True, slots=True)
class Offer:
    """A part of a model, and what to type once it is unpacked."""

    part: str
    title: str
    what: str
    file: str
    python: str
    serve: str


@dataclass(frozen=True, slots=True)
class Use:
    """`offers` is empty where the files are gone."""

    offers: list[Offer]
    card: SafeString


_WHAT = {
    MERGED: ("Download", "Safetensors, tokenizer and chat template, with a model card."),
    ADAPTER: (
        "Download the adapter",
        "The LoRA alone, for peft on its base.",
    ),
}


def use_of(model: Checkpoint) -> Use:
    card, parts = model_card(model), parts_of(model)
    member = member_of(model) if parts else ""
    offers = [
        Offer(
            part=part,
            title=_WHAT[part][0],
            what=_WHAT[part][1],
            file=f"{folder_name(model, part)}.tar",
            python=python_lines(card, part, member=member),
            serve=serve_line(card, part),
        )
        for part in parts
    ]
    return Use(offers, text_html(card_body(card)))
