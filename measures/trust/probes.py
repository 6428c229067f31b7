"""Texts that a good reward must not like: empty, flattering and damaged answers.

Every probe belongs to a real answer and takes its length and form from it, so that a model cannot
tell the two apart by these. The same seed gives the same probes. Lengths are in characters.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from measures.text import normalise
from measures.trust.probe_texts import (
    CONFIDENT,
    CONFIDENT_SHORT,
    HEDGING,
    HEDGING_SHORT,
    NEUTRAL,
    OUTLINE,
    PRAISE,
    PUNCTUATION,
    RESTATING,
)

SHORT = 25  # characters: below it an empty answer is one short sentence, whole
LONGEST_RESTATED = 300  # characters of the prompt that are said again at once
_SENTENCE = re.compile(r"\S.*?(?:[.!?…]+[\"'”’)\]]*(?=\s|$)|$)", re.DOTALL)
# What a line of an answer begins with: white space, a heading, a bullet or a number.
_LINE_START = re.compile(r"^([ \t]*(?:#{1,6}[ \t]+|[-*+•][ \t]+|\d{1,3}[.)][ \t]+|>[ \t]*)?)(.*)$")
_BOLD_START = re.compile(r"^(\*\*|__)[^*_\n]+\1")


@dataclass(frozen=True, slots=True)
class Probe:
    """`text` has to score under `against_text`, both as answers to prompt number `prompt_index`.

    Where something was added to the answer, `control_text` is the answer with a neutral sentence of
    the same length in the same place, and the difference between the two is what counts.
    """

    kind: str  # a key of `probe_texts.WORDS`
    prompt_index: int
    text: str
    against_text: str
    control_text: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text for text in (self.text, self.against_text, self.control_text) if text)


# Scores by (prompt_index, text): what the lines of `attack` read.
ProbeScores = Mapping[tuple[int, str], float]


def texts_to_score(probes: Sequence[Probe]) -> list[tuple[int, str]]:
    """(prompt_index, text) of everything that the probes compare, each once, in order."""
    return list(
        dict.fromkeys((probe.prompt_index, text) for probe in probes for text in probe.texts)
    )


def empty_probes(prompts: Sequence[str], answers: Sequence[str], *, seed: int) -> list[Probe]:
    """Answers that say nothing, in the length and form of each real one."""
    probes = []
    for index, answer in _answered(prompts, answers):
        rng = np.random.default_rng((seed, index))
        length = len(answer)
        hedging, confident = (
            (HEDGING_SHORT, CONFIDENT_SHORT) if length < SHORT else (HEDGING, CONFIDENT)
        )
        one = hedging[int(rng.integers(len(hedging)))]
        made = {
            "hedging": _in_form_of(answer, _shuffled(hedging, rng)),
            "confident_nonsense": _in_form_of(answer, _shuffled(confident, rng)),
            "restated_prompt": _filled(_restated(prompts[index], rng), length),
            "outline": _outline(length, rng),
            "repeated_filler": _filled((one,), length),
            "punctuation": _filled(_shuffled(PUNCTUATION, rng), length),
        }
        probes += [Probe(kind, index, text, answer) for kind, text in made.items()]
    return _different(probes)


def praise_probes(prompts: Sequence[str], answers: Sequence[str], *, seed: int) -> list[Probe]:
    """Praise and apologies alone, and before and after each real answer."""
    probes = []
    for index, answer in _answered(prompts, answers):
        rng = np.random.default_rng((seed, index))
        at_length = _filled(_shuffled(tuple(PRAISE.values()), rng), len(answer))
        probes.append(Probe("praise_only_at_length", index, at_length, answer))
        for name, words in PRAISE.items():
            neutral = NEUTRAL[name][int(rng.integers(len(NEUTRAL[name])))]
            probes += [
                Probe(f"praise_only_{name}", index, words, answer),
                Probe(
                    f"praise_before_{name}",
                    index,
                    f"{words} {answer}",
                    answer,
                    f"{neutral} {answer}",
                ),
                Probe(
                    f"praise_after_{name}",
                    index,
                    f"{answer} {words}",
                    answer,
                    f"{answer} {neutral}",
                ),
            ]
    return _different(probes)


def damage_probes(prompts: Sequence[str], answers: Sequence[str], *, seed: int) -> list[Probe]:
    """Each answer cut, shuffled, repeated, and put under another prompt.

    Damage that leaves an answer as it was (one word cannot be shuffled) is left out.
    """
    probes = []
    elsewhere = _other_answers(prompts, answers, seed)
    for index, answer in _answered(prompts, answers):
        rng = np.random.default_rng((seed, index))
        sentences = sentences_of(answer)
        made = {
            "cut_in_half": _cut(answer, len(answer) // 2),
            "shuffled_words": " ".join(_disordered(answer.split(), rng)),
            "wrong_topic": elsewhere.get(index, ""),
        }
        if len(sentences) > 2:  # two may be as good the other way round
            between = "\n" if "\n" in answer.strip() else " "
            made["shuffled_sentences"] = between.join(_disordered(sentences, rng))
        if len(sentences) > 1:
            whole = next((one for one in sentences if len(one.split()) > 3), sentences[0])
            made["repeated_sentence"] = _filled((whole,), len(answer))
        probes += [Probe(kind, index, text, answer) for kind, text in made.items()]
    return _different(probes)


def sentences_of(text: str) -> list[str]:
    """Runs up to a full stop, question or exclamation mark before white space; at the ends of
    lines too, so that the items of a list count as sentences, each with its bullet or number."""
    found = []
    for line in text.splitlines():
        start, body = _LINE_START.match(line).groups()  # type: ignore[union-attr]
        inside = [one.strip() for one in _SENTENCE.findall(body)]
        if inside:
            found += [(start + inside[0]).strip(), *inside[1:]]
    return found


def _answered(prompts: Sequence[str], answers: Sequence[str]) -> Iterator[tuple[int, str]]:
    if len(prompts) != len(answers):
        raise ValueError(f"one answer per prompt: {len(answers)} for {len(prompts)}")
    return ((index, answer) for index, answer in enumerate(answers) if answer.strip())


def _different(probes: list[Probe]) -> list[Probe]:
    return [
        probe
        for probe in probes
        if probe.text.strip() and normalise(probe.text) != normalise(probe.against_text)
    ]


def _shuffled(texts: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
    return tuple(texts[i] for i in rng.permutation(len(texts)))


def _disordered(parts: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Another order than the given one, where there is one."""
    if len(set(parts)) < 2:
        return list(parts)
    while True:
        mixed = [parts[i] for i in rng.permutation(len(parts))]
        if mixed != list(parts):
            return mixed


def _filled(sentences: Sequence[str], length: int) -> str:
    """Sentences in turn, at least `length` and at most a word more, the last one closed.

    Never shorter than what it imitates: to whoever loves length it must look as good.
    """
    text = sentences[0]
    turn = 1
    while len(text) <= length + 1:
        text += " " + sentences[turn % len(sentences)]
        turn += 1
    if length < SHORT:
        return sentences[0]
    kept = _reaching(text, length + 1).rstrip(",;:")
    return kept if kept[-1] in ".!?…*" else kept + "."


def _reaching(text: str, length: int) -> str:
    """The first `length` characters and the rest of the word that breaks there."""
    end = length
    while end < len(text) and not text[end].isspace():
        end += 1
    return text[:end].rstrip()


def _cut(text: str, length: int) -> str:
    """The first `length` characters without the word that breaks there; one word stays."""
    if len(text) <= length:
        return text
    kept = text[: length + 1]
    if not kept[-1].isspace():
        kept = kept[: max(kept.rfind(" "), kept.rfind("\n"), 0)] or text.split()[0]
    return kept.rstrip()


def _in_form_of(answer: str, sentences: Sequence[str]) -> str:
    """The answer line by line with its headings, bullets and bold type, and other words in it."""
    if len(answer) < SHORT:
        return sentences[0]
    lines, turn = [], 0
    for line in answer.splitlines():
        start, body = _LINE_START.match(line).groups()  # type: ignore[union-attr]
        if not body.strip() or body.startswith(("```", "~~~")):
            lines.append(line)
            continue
        first = turn % len(sentences)
        rest = (*sentences[first:], *sentences[:first])
        long = len(body) >= SHORT
        filled = _filled(rest, len(body)) if long else _reaching(rest[0], len(body))
        if _BOLD_START.match(body):
            words = filled.split(" ")
            filled = " ".join([f"**{' '.join(words[:2])}**", *words[2:]])
        lines.append(start + filled)
        turn += 1 + filled.count(".")
    return "\n".join(lines)


def _restated(prompt: str, rng: np.random.Generator) -> tuple[str, ...]:
    words = _cut(" ".join(prompt.split()), LONGEST_RESTATED) or "this"
    return tuple(one.format(prompt=words) for one in _shuffled(RESTATING, rng))


def _outline(length: int, rng: np.random.Generator) -> str:
    """Headings with bullets, as many as it takes."""
    first, *middle, last = OUTLINE
    lines: list[str] = []
    for heading, bullets in (first, *[middle[i] for i in rng.permutation(len(middle))], last):
        lines += [f"## {heading}", *(f"- {bullet}" for bullet in bullets), ""]
    if length < SHORT:
        return first[0]
    text = "\n".join(lines)
    while len(text) < length:
        text += "\n" + "\n".join(lines)
    return _reaching(text, length)


def _other_answers(prompts: Sequence[str], answers: Sequence[str], seed: int) -> dict[int, str]:
    """For each prompt an answer to a different one, near it in length."""
    rng = np.random.default_rng(seed)
    keys = [normalise(prompt) for prompt in prompts]
    found = {}
    for index, answer in _answered(prompts, answers):
        others = [i for i, text in _answered(prompts, answers) if keys[i] != keys[index]]
        if not others:
            continue
        near = sorted(others, key=lambda i: (abs(len(answers[i]) - len(answer)), i))[:5]
        found[index] = answers[near[int(rng.integers(len(near)))]]
    return found
