"""Answers that say who wrote them are found; texts about models are left alone."""

import pytest

from apps.accounts.models import Project
from apps.labeling import services
from apps.labeling.blindness import self_naming

GIVEN_AWAY = [
    "I am ChatGPT, a large language model.",
    "I'm Claude, made by Anthropic.",
    "I’m an AI model called Claude.",
    "As an AI language model developed by OpenAI, I cannot say.",
    "I was trained by OpenAI on a lot of text.",
    "My name is Bard and I can help.",
    "As GPT-4, I have no feelings.",
    "I am Llama 3, here to help.",
    "i am qwen, created by alibaba cloud",
    "Hello! This is Gemini.",
    "I am a language model created by Google DeepMind.",
    "I ａｍ ＣｈａｔＧＰＴ.",
    "I'm DeepSeek-V3, an assistant.",
    "I am an assistant built by Mistral AI.",
]
INNOCENT = [
    "GPT-4 was released by OpenAI in 2023.",
    "I am sure that Claude Monet painted it.",
    "The llama is an animal of the Andes.",
    "As a bard he travelled from court to court.",
    "I think bottled water should be banned.",
    "As many as 3,000 people came.",
    "I am against it: falcons nest there.",
    "This is the palm of my hand.",
    "Companies such as OpenAI train models.",
]


@pytest.mark.parametrize("text", GIVEN_AWAY)
def test_an_answer_that_names_its_model_is_found(text: str) -> None:
    assert self_naming(text)


@pytest.mark.parametrize("text", INNOCENT)
def test_a_text_about_other_things_is_left_alone(text: str) -> None:
    assert not self_naming(text)


def test_the_name_of_its_own_model_counts_wherever_it_stands() -> None:
    assert self_naming("Sincerely, house-model-7b", model="house-model-7b") == "house-model-7b"
    assert not self_naming("Sincerely, yours", model="house-model-7b")


def test_the_import_warns_of_each_answer_and_keeps_it(project: Project) -> None:
    report = services.comparisons_import(
        project=project,
        rows=[{"prompt": "Who?", "response_a": "I am ChatGPT.", "response_b": "Nobody."}],
    )
    assert report.n_created == 1
    (warning,) = report.warnings
    assert (warning.row, warning.field) == (1, "response_a")
    assert "I am ChatGPT" in warning.message
