"""Answers that say who wrote them are found; texts about models are left alone."""

import pytest

from apps.accounts.models import Project
from apps.labeling import services
from apps.labeling.blindness import self_naming
from apps.labeling.personal_data import personal_data

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


# Personal data is found, masked, and not seen where there is none.


FOUND = [
    ("Mail me at jane.doe+x@gmail.com.", "email", "jane"),
    ("Call +49 30 901820, please", "phone", "9018"),
    ("(212) 456-7890", "phone", "456-7"),
    ("212-456-7890", "phone", "456-7"),
    ("IBAN DE89 3704 0044 0532 0130 00", "iban", "0532"),
    ("GB29NWBK60161331926819", "iban", "6016"),
    ("card 4111 1111 1111 1111 exp", "card", "1111 1111 1111"),
    ("amex 3782 822463 10005", "card", "822463"),
    ("SSN 219-09-9999", "ssn", "09-99"),
    ("host 8.8.8.8 is up", "ip", "8.8.8"),
    ("2001:4860:4860::8888", "ip", "4860"),
    ("key AKIA" + "IOSFODNN7EXAMPLE", "secret", "IOSF"),
    ("sk-" + "proj-abcdefghijklmnopqrstuvwx", "secret", "abcdef"),
    ("gh" + "p_" + "a1B2" * 9, "secret", "B2a1"),
    ("-----BEGIN RSA " + "PRIVATE KEY-----", "secret", "RSA"),
]
NOT_PERSONAL = [
    "Write to info@example.org or me@mail.test.",
    "@home and foo@bar are no addresses",
    "Call 212-555-0123 in the film",
    "In 2023-04-05 there were 1,234,567 people, 3.1415926535 of them",
    "ISBN 978-3-16-148410-0",
    "card 4111 1111 1111 1112",  # Luhn fails
    "DE89 3704 0044 0532 0130 01",  # mod 97 fails
    "order 1234567890123456",
    "version 8.8.4.4 and v10.20.30.40",
    "192.168.0.1 and 127.0.0.1",
    "std::vector<int> at 12:30:45",
    "doi 10.1038/s41586-020-2649-2",
    "my_variable_name = sk-ip",
    "000-12-3456 and 666-12-3456 were never issued",
    "from 1914-1918 and 1939-1945",
]


@pytest.mark.parametrize(("text", "kind", "hidden"), FOUND)
def test_it_is_found_and_its_excerpt_does_not_carry_it(text: str, kind: str, hidden: str) -> None:
    found = {f.kind: f for f in personal_data(text)}
    assert kind in found
    assert hidden in text
    assert hidden not in found[kind].words


@pytest.mark.parametrize("text", NOT_PERSONAL)
def test_other_numbers_and_words_are_left_alone(text: str) -> None:
    assert personal_data(text) == []


def test_each_kind_is_told_once() -> None:
    found = personal_data("a.b@gmail.com, c.d@gmail.com, 8.8.8.8")
    assert [f.kind for f in found] == ["email", "ip"]


def test_a_long_text_is_read_in_pieces_that_miss_nothing() -> None:
    filler = "The run read file after file. " * 3_000
    naming = "I am ChatGPT, a large language model."
    for at in (*range(19_980, 20_010, 5), 40_300, len(filler) - 1):
        text = f"{filler[:at]}. {naming} {filler[at:]}"
        assert self_naming(text) == "I am ChatGPT", at
    assert self_naming(filler) == ""


@pytest.mark.parametrize("find", ["4111 1111 1111 1111", "GB29 NWBK 6016 1331 9268 19", "8.8.8.8"])
def test_numbers_and_keys_are_found_anywhere_in_a_long_text(find: str) -> None:
    log = "".join(f"task-{n} took 1{n:06} ms at 10.0.0.{n % 250}\n" for n in range(3_000))
    key = "sk-" + "a1" * 20
    kinds = {one.kind for one in personal_data(f"{log}{find}\n{log}{key}\n{log}")}
    assert kinds == {one.kind for one in personal_data(find)} | {"secret"}
    assert personal_data(log) == []
