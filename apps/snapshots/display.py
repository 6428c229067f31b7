"""What the pages print: counts in, words and table rows out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.common.numbers import percent
from apps.common.numbers import share as measured
from apps.snapshots.assembling.deciding import NO_VOTES
from apps.snapshots.assembling.losses import Loss
from apps.snapshots.models import AI_FEEDBACK, IMPROVED, MIXTURE, TRIED_AGAIN, Snapshot
from apps.snapshots.progress import DEMONSTRATING, MIXING, STEPS
from apps.snapshots.recipe import PRIVATE_SPLITS, PUBLISHED, SINGLE, in_order
from workers.contract.jobs import PEOPLE

SPLIT_WORDS = {
    "train": "Training",
    "smoke": "Smoke: a quick check that a run works",
    "dev": "Dev: steers training",
    "public_test": "Public test",
    "private_test": "Private test",
    "human_audit": "Human audit",
    "heldout_groups": "Held-out groups",
    "heldout_annotators": "Held-out annotators, one row a vote",
}


@dataclass(frozen=True, slots=True)
class DatasetTile:
    name: str
    value: str
    spread: str
    basis: str


@dataclass(frozen=True, slots=True)
class SplitRow:
    name: str
    words: str
    rows: int
    groups: int | None
    arguments: int | None
    private: bool = False


@dataclass(frozen=True, slots=True)
class DropRow:
    reason: str
    n: int
    percent: float


def split_rows(counts: Mapping[str, Any]) -> list[SplitRow]:
    groups, arguments = counts.get("groups", {}), counts.get("arguments", {})
    return [
        SplitRow(
            name,
            SPLIT_WORDS[name],
            n,
            groups.get(name),
            arguments.get(name),
            name in PRIVATE_SPLITS,
        )
        for name, n in in_order(counts.get("rows", {})).items()
    ]


_REASONS = {NO_VOTES: "not voted on yet, or no vote counts"}  # on pages; stored as they were


def drop_rows(counts: Mapping[str, Any]) -> list[DropRow]:
    """Most frequent first; percent of all comparisons (or rows that came in)."""
    dropped = counts.get("dropped", {})
    whole = counts.get("comparisons") or sum(dropped.values()) + sum(
        counts.get("rows", {}).values()
    )
    ordered = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    return [DropRow(_REASONS.get(reason, reason), n, 100 * n / whole) for reason, n in ordered]


def tiles(counts: Mapping[str, Any]) -> list[DatasetTile]:
    """The headline figures of a preference dataset, or of its preview."""
    if "comparisons" not in counts:
        return []
    votes, people, chance = counts["votes"], counts["annotators"], counts["chance_keep_rate"]
    share = counts["kept"] / counts["comparisons"] if counts["comparisons"] else None
    return [
        DatasetTile(
            "Kept",
            f"{counts['kept']:,}",
            measured(share),
            f"of {counts['comparisons']:,} comparisons",
        ),
        DatasetTile(
            "Accepted by chance (random voters)",
            measured(chance),
            "",
            "of the same comparisons",
        ),
        DatasetTile(
            "Votes that decide",
            f"{votes['deciding']:,}",
            "",
            f"{people['training']:,} annotators behind the training rows",
        ),
        DatasetTile(
            "Held-out annotators",
            f"{people['held_out']:,}",
            "",
            f"{votes['held_out_rows']:,} of their {votes['held_out']:,} votes are measured on"
            if people["held_out"]
            else "nothing is said about people who were not seen",
        ),
    ]


def figures(counts: Mapping[str, Any], warnings: Sequence[str]) -> dict[str, Any]:
    """What a preview and a dataset's page have in common."""
    return {
        "tiles": tiles(counts),
        "splits": split_rows(counts),
        "drops": drop_rows(counts),
        "warnings": warnings,
        "notes": notes(counts),
        "strata": strata_rows(counts),
        "n_train": counts.get("rows", {}).get("train", 0),
    }


@dataclass(frozen=True, slots=True)
class LossLine:
    """A setting that loses many pairs: its field on the form, what it loses, and the way out."""

    field: str
    words: str
    way_out: str


# What the setting is called in a sentence, and what the button beside it does.
_LOSSES = {
    "decide_by": ("This way to decide", "Decide as the project does"),
    "least_votes": ("This minimum", "Take the project’s"),
    "least_agreeing": ("This minimum", "Take the project’s"),
    "least_share": ("This minimum", "Take the project’s"),
    "least_posterior": ("This minimum", "Take the project’s"),
    "rulings": ("Ignoring rulings", "Let rulings override the votes"),
    "ties": ("Leaving ties and “both are bad” out", "Keep them, as soft labels"),
    "heldout_groups": ("Holding these groups out", "Hold out no group"),
    "half": ("Taking one half of the groups", "Take all groups"),
    "groups": ("Taking these groups only", "Take all groups"),
    "topics": ("Taking these topics only", "Take all topics"),
    "batches": ("Taking these batches only", "Take all batches"),
    "without_annotators_of": ("Leaving these annotators out", "Leave none of them out"),
    "cast_from": ("Leaving earlier votes out", "Take votes from the beginning"),
    "cast_before": ("Leaving later votes out", "Take votes to the end"),
}


def loss_lines(losses: Sequence[Loss]) -> list[LossLine]:
    return [LossLine(*_loss(loss)) for loss in losses]


def _loss(loss: Loss) -> tuple[str, str, str]:
    people = f"{loss.n:,} {'person' if loss.n == 1 else 'people'}"
    field, (what, way_out) = {
        "heldout_annotators": ("heldout_annotators", (f"Holding out {people}", "Hold out nobody")),
        "left_out": ("include_left_out", (f"Leaving out {people}", "Include their votes")),
    }.get(loss.name) or (loss.name, _LOSSES[loss.name])
    return field, f"{what} loses {loss.lost:,} of {loss.decided:,} pairs.", way_out


_HELD_OUT = {
    "hash": "by the hash of the group, since the rows held nothing out",
    "rows": "the rows that say so",
    MIXTURE: "what any of the mixed datasets holds out",
}


def labels_words(about: Mapping[str, Any]) -> str:
    """Whose labels these are, of a dataset's counts or card; "" where rows have none."""
    if about.get("kind") not in ("preferences", "unpaired"):
        return ""
    if by := about.get("labelled_by"):
        people = by.get(PEOPLE, 0)
        models = [f"{n:,} by {name}" for name, n in by.items() if name != PEOPLE]
        if not models:
            return "given by people"
        return f"{people:,} training rows labelled by people, {', '.join(models)}, which is AI"
    if about.get("labelled") == "elsewhere":
        some = "of some rows " if "parts" in about or MIXTURE in about.get("recipe", {}) else ""
        return f"{some}given elsewhere; nobody voted here"
    decided = about.get("decided_by") or about.get("counts", {}).get("decided_by") or {}
    if decided and set(decided) == {"label"}:
        return "published with the pairs; nobody voted here"
    return "given by people"


def notes(counts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, in words) of what else there is to know before trusting the rows."""
    weights, near = counts.get("weights", {}), counts.get("near_duplicates", {})
    effective, n = weights.get("effective_rows"), weights.get("rows")
    decided = {
        "votes": "by counting",
        "model": "by a model of the voters",
        "vote": "by one vote",
        "ruling": "by a person",
    }
    decided["label"] = "by the published label; nobody voted"
    labels = counts.get("labels", {})
    said = [
        ("Labels", labels_words(counts)),
        ("By principle", _listed(counts.get("by_principle"))),
        (
            "Left out before",
            f"{counts['blocked_phrases']:,} pairs whose preferred answer holds a blocked phrase"
            if counts.get("blocked_phrases")
            else "",
        ),
        ("Written texts", _written_words(counts.get("written"))),
        ("File", counts.get("file", "")),
        ("Held out", _HELD_OUT.get(counts.get("split_by", ""), "")),
        (
            "Training labels",
            f"{labels['desirable']:,} desirable, {labels['undesirable']:,} undesirable"
            if labels
            else "",
        ),
        ("Pairs decided", _listed(counts.get("decided_by"), decided)),
        ("Rulings on disputes", _listed(counts.get("rulings"))),
        ("Votes not counted", _listed(counts.get("votes", {}).get("refused"))),
        (
            "Effective training rows",
            f"{effective:,.0f} of {n:,} after weighting" if effective and effective < n else "",
        ),
        (
            "Near-duplicates",
            f"{near['texts']:,} texts, which tie {near['joined_groups']:,} groups to others"
            if near.get("texts")
            else "",
        ),
    ]
    return [(name, words) for name, words in said if words]


def _listed(counts: Mapping[str, int] | None, words: Mapping[str, str] | None = None) -> str:
    found = sorted((counts or {}).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n:,} {(words or {}).get(name, name)}" for name, n in found if n)


@dataclass(frozen=True, slots=True)
class StratumRow:
    """A stratum of the training rows: how many, and what they weigh in percent of all."""

    by: str
    name: str
    rows: int
    percent: float
    weight_percent: float


STRATA_WORDS = {"length": "Length", "topic": "Topic", "unsafe": "Flags"}


def strata_rows(counts: Mapping[str, Any], most: int = 12) -> list[StratumRow]:
    """Classifications with more than one stratum; of long ones the largest."""
    found = []
    for by, of in counts.get("weights", {}).get("strata", {}).items():
        rows = sum(one["rows"] for one in of.values())
        weight = sum(one["weight"] for one in of.values())
        if len(of) < 2 or not weight:
            continue
        largest = sorted(of.items(), key=lambda item: (-item[1]["rows"], item[0]))[:most]
        found += [
            StratumRow(
                STRATA_WORDS.get(by, by),
                name,
                one["rows"],
                100 * one["rows"] / rows,
                100 * one["weight"] / weight,
            )
            for name, one in largest
        ]
    return found


@dataclass(frozen=True, slots=True)
class Making:
    """A draft on its way: which step of how many, since when, and whether anybody has it."""

    step: str
    number: int
    done: int
    steps: int
    seconds: float
    cancelling: bool
    is_late: bool


LATE = 30  # seconds in the queue after which a page says that nobody has taken it


def making(snapshot: Snapshot, told: Mapping[str, Any], now: datetime) -> Making:
    step = str(told.get("step", ""))
    since = snapshot.started_at or snapshot.queued_at or snapshot.created_at
    seconds = max(0.0, (now - since).total_seconds())
    steps = STEPS
    if MIXTURE in snapshot.recipe:
        steps = MIXING
    elif IMPROVED in snapshot.recipe:
        steps = DEMONSTRATING
    if not snapshot.started_at:
        waits = seconds > LATE or (now - snapshot.created_at).total_seconds() > LATE
        return Making("Waiting for a worker", 0, 0, len(steps), seconds, False, waits)
    number = steps.index(step) + 1 if step in steps else 1
    words = step or "At work"
    return Making(words, number, number - 1, len(steps), seconds, snapshot.cancel_wanted, False)


def detail(snapshot: Snapshot) -> dict[str, Any]:
    """The parts of a dataset's page that its counts give."""
    return figures(snapshot.counts, snapshot.counts.get("warnings", [])) | {
        "facts": recipe_facts(snapshot.recipe),
        "has_private": bool(snapshot.private_sha256),
        "has_report": snapshot.state == Snapshot.State.FROZEN and snapshot.has_report,
        "has_recipe": "ties" in snapshot.recipe,
        "may_be_tried_again": bool(TRIED_AGAIN & set(snapshot.recipe)),
        "parts": snapshot.counts.get("parts", []),
    }


def _people_facts(recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Of what people wrote."""
    if IMPROVED not in recipe:
        return []
    named = recipe.get("batches", [])
    only = [("Writing work", f"{len(named):,} of its batches")] if named else []
    return [("Made of", str(recipe[IMPROVED])), *only]


def _written_words(written: Mapping[str, Any] | None) -> str:
    if not written:
        return ""
    n, reviewed, edited = (written[name] for name in ("texts", "reviewed", "edited"))
    return f"{n:,}, of which {reviewed:,} reviewed by another person and {edited:,} edited by one"


def _mixture_facts(recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    mixture = recipe.get(MIXTURE)
    if not mixture:
        return []
    total = math.fsum(one["weight"] for one in mixture["parts"])
    parts = [f"{percent(one['weight'] / total)} {one['name']}" for one in mixture["parts"]]
    small = "its rows recur" if mixture["repeat"] else "ends the mixture"
    return [("Mixed from", ", ".join(parts)), ("A part that is used up", small)]


def _ai_facts(recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    about = recipe.get(AI_FEEDBACK)
    if not about:
        return []
    said = [("Labelled by", about["labelled_by"])]
    if about.get("constitution"):
        said.append(("Constitution", f"version {about['constitution']}"))
    return said


def recipe_facts(recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, words) of what was chosen; filters that filter nothing are left out."""
    if "least_votes" not in recipe:
        return _mixture_facts(recipe) + _ai_facts(recipe) + _people_facts(recipe)
    filters = recipe.get("filters", {})
    chosen = [
        ("Rule", _rule(recipe)),
        ("Rulings", _RULINGS.get(recipe.get("rulings", ""), "override the votes")),
        ("Held-out groups", ", ".join(recipe["heldout_groups"]) or "none"),
        (
            "Held-out annotators",
            f"{percent(recipe['heldout_annotators'])} of people, by hash"
            if recipe["heldout_annotators"]
            else "nobody",
        ),
        *([("Rows name", "who voted, by pseudonyms")] if recipe.get("name_annotators") else ()),
        (
            "Splits",
            ", ".join(f"{k} {percent(v)}" for k, v in in_order(recipe["splits"]).items() if v),
        ),
        ("Split by", recipe["split_by"]),
        ("Near-duplicates", _near(recipe)),
        ("Ties", _TIES.get(recipe["ties"], recipe["ties"])),
        ("Weights", _weights(recipe)),
        ("Seed", recipe["seed"]),
    ]
    for name, value in filters.items():
        if name in _PEOPLE and value:
            chosen.append((_PEOPLE[name], f"{len(value):,} left out"))
        elif name == "comparisons" and value:
            chosen.append(("Comparisons", f"only {len(value):,} that were picked"))
        elif value:
            words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            chosen.append((name.replace("_", " ").capitalize(), words))
    return [(name, words) for name, words in chosen if words]


def card_facts(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a card says of how the dataset was made, and whose labels these are."""
    words = labels_words(card)
    return [
        *([("Labels", words)] if words else []),
        *pool_facts(card.get("pool")),
        *(
            [("Written texts", said)]
            if (said := _written_words(card.get("counts", {}).get("written")))
            else []
        ),
        *recipe_facts(card.get("recipe", {})),
        *removed_facts(card.get("personal_data_removed")),
    ]


def pool_facts(pool: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Who annotated, what they were told and agreed to, and the licence of what they wrote."""
    if not pool:
        return []
    facts = [("Annotators", _pool_words(pool))]
    if pool["statement"]:
        version = f"version {pool['statement_version']}"
        facts.append(("What they were told", f"{pool['statement']} ({version})"))
    licence = pool["remarks_licence"] or "none: it is in no export"
    return [*facts, ("Licence of what they wrote", licence)]


def _pool_words(pool: Mapping[str, Any]) -> str:
    here = pool["people"] - pool["imported"]
    said = [f"{here:,} people of this project"] if here else []
    if pool["imported"]:
        said.append(f"{pool['imported']:,} whose votes were imported")
    words = " and ".join(said) or "nobody"
    if not pool["statement"]:
        return f"{words}; they were not asked to agree to a statement"
    words += f"; {pool['agreed']:,} agreed to the statement below"
    return words + (f", {pool['agreed_before']:,} to a former one" if pool["agreed_before"] else "")


def removed_facts(removed: Mapping[str, int] | None) -> list[tuple[str, str]]:
    """What an export took out of the texts, where it was asked to."""
    if removed is None:
        return []
    by_split = ", ".join(f"{n:,} in {split}" for split, n in removed.items())
    return [("Taken out as personal data", by_split or "nothing was found")]


_TIES = {
    "drop": "dropped and counted",
    "soft": "soft labels, a tie one half",
    "kto": "kept, as single answers that are desirable or not",
}
_RULINGS = {"override": "override the votes", "ignore": "ignored"}
_METHODS = {"one_coin": "one-coin Dawid–Skene", "dawid_skene": "Dawid–Skene", "mace": "MACE"}
_PEOPLE = {"left_out": "Annotators an admin left out", "without_annotators": "Other annotators"}


def _rule(recipe: Mapping[str, Any]) -> str:
    method = _METHODS.get(recipe.get("decide_by", "votes"))
    votes = f"at least {recipe['least_votes']} votes"
    if recipe.get("decide_by") == PUBLISHED:
        return "the published label that a pair was imported with"
    if recipe.get("decide_by") == SINGLE:
        return "single votes, soft labels: every pair with a vote"
    if method:
        return f"{method}: {votes}, a probability of {recipe['least_posterior']:g}"
    return f"{votes}, {recipe['least_agreeing']} agreeing, a share of {recipe['least_share']:g}"


def _near(recipe: Mapping[str, Any]) -> str:
    if "near_duplicates" not in recipe:
        return ""
    what = "joined" if recipe["near_duplicates"] == "join" else "refused across splits"
    return f"{what}, from {percent(recipe['duplicate_similarity'])} alike"


def _weights(recipe: Mapping[str, Any]) -> str:
    said = []
    if recipe.get("balance"):
        said.append(f"even over {', '.join(recipe['balance'])}")
    if recipe.get("most_train_rows"):
        said.append(f"at most {recipe['most_train_rows']:,} rows")
    if recipe.get("half_life_days"):
        said.append(f"half after {recipe['half_life_days']:g} days")
    if recipe.get("reliability_weights"):
        said.append("by reliability")
    if not said:
        return "all the same"
    return f"{', '.join(said)}; at most {recipe['weight_cap']:g} times the mean"
