"""Near-duplicates across splits: joined into one unit, or refused; and splits that never move."""

import dataclasses
import random
from collections.abc import Callable

import pytest

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Prompt, Response
from apps.snapshots.assembling import assembly, gate
from apps.snapshots.assembling.assembly import assemble
from apps.snapshots.assembling.gate import LeakFound, near_leaks
from apps.snapshots.assembling.material import Material
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import PRIVATE_SPLITS, SnapshotRecipe
from apps.snapshots.services import freezing, writing
from measures.splits import split_of
from tests.snapshots.conftest import WORDS
from tests.snapshots.test_gathering import material, pair, reasons, recipe

HALVES = {"train": 0.5, "public_test": 0.5}


def text(seed: int, n: int = 60) -> str:
    return " ".join(
        random.Random(seed).choices([f"{w}{k}" for w in WORDS.split() for k in range(9)], k=n)
    )


def changed(said: str) -> str:
    """One word in the middle is another: 55 of 61 shingles stay."""
    words = said.split()
    words[30] = "otherwise"
    return " ".join(words)


def given(n: int = 40, *, twins: tuple[tuple[int, int], ...] = ()) -> Material:
    """n groups of a pair each with texts of their own; the answers `a` of twins are nearly the
    same."""
    pairs = [pair(k, f"g{k:02}", f"a{k}", f"b{k}", prompt=f"p{k}") for k in range(n)]
    base = material(pairs, dict.fromkeys(range(n), "aaa"))
    texts = {f"{kind}{k}": text(100 * k + ord(kind)) for k in range(n) for kind in "abp"}
    for one, other in twins:
        texts[f"a{other}"] = changed(texts[f"a{one}"])
    return dataclasses.replace(base, texts=texts)


def apart(wanted: SnapshotRecipe, n: int = 40) -> tuple[int, int]:
    """Two groups that the hash puts on either side, the older in training."""
    place = [split_of(f"g{k:02}", wanted.shares, wanted.seed) for k in range(n)]
    train = place.index("train")
    return train, next(k for k in range(train + 1, n) if place[k] != "train")


def test_groups_with_nearly_the_same_answer_stay_on_one_side() -> None:
    wanted = recipe(splits=HALVES)
    twins = apart(wanted)
    plain, joined = assemble(given(), wanted), assemble(given(twins=(twins,)), wanted)

    def place(made):
        return {line.pair: split for split, lines in made.lines.items() for line in lines}

    assert place(plain)[twins[0]] != place(plain)[twins[1]]
    assert place(joined)[twins[0]] == place(joined)[twins[1]] == "train"  # the older one stays
    assert joined.counts["near_duplicates"]["joined_groups"] == 1
    moved = {k for k in place(plain) if place(plain)[k] != place(joined)[k]}
    assert moved == {twins[1]}


def test_a_group_never_moves_while_data_grow() -> None:
    wanted = recipe(splits=HALVES)
    small, large = assemble(given(30), wanted), assemble(given(60), wanted)
    before = {line.pair: split for split, lines in small.lines.items() for line in lines}
    after = {line.pair: split for split, lines in large.lines.items() for line in lines}
    assert after.items() >= before.items()


def test_what_comes_later_follows_the_group_it_resembles() -> None:
    """A new group's near-duplicate joins the old group's split, and the old one stays."""
    wanted = recipe(splits=HALVES)
    for old in range(10):
        made = assemble(given(40, twins=((old, 39),)), wanted)
        place = {line.pair: split for split, lines in made.lines.items() for line in lines}
        assert place[old] == place[39] == split_of(f"g{old:02}", wanted.shares, wanted.seed)


def test_prompts_that_are_nearly_the_same_stay_on_one_side() -> None:
    wanted = recipe(splits=HALVES)
    one, other = apart(wanted)
    base = given()
    texts = {**base.texts, f"p{other}": changed(base.texts[f"p{one}"])}
    made = assemble(dataclasses.replace(base, texts=texts), wanted)
    place = {line.pair: split for split, lines in made.lines.items() for line in lines}
    assert place[one] == place[other]


def test_a_near_duplicate_of_a_held_out_group_is_left_out() -> None:
    made = assemble(given(twins=((3, 7),)), recipe(heldout_groups=("g03",)))
    assert reasons(made) == {7: assembly.NEAR_HELDOUT}


def test_prompts_of_one_template_are_said_to_leave_nothing_to_split() -> None:
    base = given()
    texts = {k: changed(text(5)) + f" {k}" if k[0] == "p" else v for k, v in base.texts.items()}
    made = assemble(dataclasses.replace(base, texts=texts), recipe(splits=HALVES))
    assert any("make only 1 units" in said and "template" in said for said in made.warnings)
    free = assemble(
        dataclasses.replace(base, texts=texts), recipe(splits=HALVES, duplicate_similarity=1.0)
    )
    assert not any("template" in said for said in free.warnings)


def test_empty_and_small_splits_are_said_not_faked() -> None:
    made = assemble(given(12), recipe(splits=SnapshotRecipe().splits))
    (said,) = [w for w in made.warnings if "empty" in w]
    assert "of the 12 groups" in said
    assert set(made.lines) < set(SnapshotRecipe().splits)


def test_families_are_kept_for_the_next_look_within_a_bound(monkeypatch) -> None:
    asked: list[int] = []

    def found(texts, *, threshold):
        asked.append(len(texts))
        return [0] * len(texts)  # all are one family

    monkeypatch.setattr(gate, "near_families", found)
    kept = gate._Kept(1_000)
    monkeypatch.setattr(gate, "_kept", kept)

    def look(kind: str, n: int) -> None:
        texts = {f"{kind}{k:04}": f"{kind} {k}" for k in range(n)}
        families = gate._families(texts, texts, 0.8)
        assert families == {f"{kind}{k:04}": f"{kind}0000" for k in range(1, n)}

    for kind in "aba":
        look(kind, 300)
    assert asked == [300, 300]
    look("c", 400)  # beyond what is kept: the oldest goes
    assert kept._n <= 1_000
    look("b", 300)
    look("a", 300)
    assert asked == [300, 300, 400, 300]
    asked.clear()
    for _ in range(2):
        look("d", 1_200)  # too large to be kept, and drives out nothing
    look("a", 300)
    assert asked == [1_200, 1_200]
    for n in range(50):
        look(f"few{n}-", 2)
    assert kept._n <= 1_000
    assert len(kept._found) < 10


# --- the gate ------------------------------------------------------------------------------------


def test_the_gate_names_the_closest_pair_and_passes_clean_files() -> None:
    said = text(1)
    files = {"train": {said: said, text(2): "b"}, "dev": {changed(said): "the twin"}}
    (leak,) = near_leaks(files, "argument", 0.8, ())
    assert leak.startswith("1 near-duplicate arguments")
    assert "dev and train" in leak
    assert "'the twin'" in leak
    assert not list(near_leaks(files, "argument", 0.8, ({"train", "dev"},)))
    clean = {"train": {text(1): "a"}, "dev": {text(2): "b"}}
    assert not list(near_leaks(clean, "argument", 0.8, ()))


def test_texts_with_the_same_words_are_near_duplicates_whatever_their_commas() -> None:
    said = text(1)
    files = {"train": {said: "a"}, "private_test": {said.replace(" ", ", ", 1): "b"}}
    assert len(list(near_leaks(files, "argument", 0.8, ()))) == 1


RECIPE = SnapshotRecipe(
    least_votes=2,
    least_agreeing=2,
    heldout_annotators=0.0,
    seed="seed-2",
    splits={"train": 0.5, "public_test": 0.3, "private_test": 0.2},
)


def freeze(project: Project, emil: User, **changes) -> Snapshot:
    return freezing.snapshot_freeze(
        project=project, name="pairs", recipe=dataclasses.replace(RECIPE, **changes), user=emil
    )


@pytest.fixture
def copied(crowd: list[Comparison]) -> tuple[str, str]:
    """One answer of a tested debate is a training answer but for one word; the two groups."""
    place = {
        c.prompt.group_key: split_of(c.prompt.group_key, RECIPE.shares, RECIPE.seed) for c in crowd
    }
    one = next(c for c in crowd if place[c.prompt.group_key] == "train")
    other = next(c for c in crowd if place[c.prompt.group_key] == "public_test")
    said = one.response_b.messages[0]["content"] + " so"
    Response.objects.filter(pk=other.response_b_id).update(
        brief=[{"role": "assistant", "content": said}]
    )
    return one.prompt.group_key, other.prompt.group_key


def test_a_near_duplicate_across_splits_is_refused_with_an_example(
    project: Project, emil: User, copied: tuple[str, str]
) -> None:
    with pytest.raises(LeakFound, match="near-duplicate arguments") as refused:
        freeze(project, emil, near_duplicates="refuse")
    assert "join near-duplicates" in refused.value.message


def test_joining_lets_the_freeze_pass_and_the_gate_proves_it(
    project: Project, emil: User, copied: tuple[str, str]
) -> None:
    made = freeze(project, emil)
    groups = made.rows.select_related("comparison__prompt")
    assert len({r.split for r in groups if r.comparison.prompt.group_key in copied}) == 1


def test_the_gate_does_not_trust_the_joining(
    project: Project, emil: User, copied: tuple[str, str], monkeypatch
) -> None:
    monkeypatch.setattr(assembly, "families_of", lambda *a: {})
    with pytest.raises(LeakFound, match="near-duplicate arguments"):
        freeze(project, emil)


def test_a_near_duplicate_prompt_across_splits_is_refused(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    place = [split_of(f"debate-{n:02}", RECIPE.shares, RECIPE.seed) for n in range(12)]
    chosen = (place.index("train"), place.index("private_test"))
    for n, end in zip(chosen, ("first", "second"), strict=True):
        asked = [{"role": "user", "content": f"{text(7)} {end}"}]
        Prompt.objects.filter(group_key=f"debate-{n:02}").update(brief=asked)
    with pytest.raises(LeakFound, match=r"prompts .*private_test"):
        freeze(project, emil, near_duplicates="refuse")


# --- private splits ------------------------------------------------------------------------------


def test_private_rows_are_in_no_file_that_a_run_or_a_reader_is_given(
    project: Project, crowd: list[Comparison], emil: User, lines_of: Callable
) -> None:
    made = freeze(project, emil)
    public, private = lines_of(made), lines_of(made, private=True)
    assert set(private) == {"private_test"}
    assert not set(public) & PRIVATE_SPLITS
    known = {row["comparison"] for rows in public.values() for row in rows}
    assert {row["comparison"] for row in private["private_test"]}.isdisjoint(known)
    assert made.private_sha256
    assert len(private["private_test"]) == made.counts["rows"]["private_test"]


def test_the_private_files_are_verified_too(
    project: Project, crowd: list[Comparison], emil: User, private_folder: Callable
) -> None:
    made = freeze(project, emil)
    assert freezing.snapshot_verify(snapshot=made).ok
    path = private_folder(made) / "private_test.jsonl"
    path.write_text(path.read_text().replace("argument", "argvment", 1))
    assert not freezing.snapshot_verify(snapshot=made).ok


def test_one_private_argument_in_training_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    def broken(given, wanted):
        made = assembly.assemble(given, wanted)
        lines = {name: list(rows) for name, rows in made.lines.items()}
        lines["train"].append(lines["private_test"][0])
        return dataclasses.replace(made, lines={n: tuple(r) for n, r in lines.items()})

    monkeypatch.setattr(freezing, "assemble", broken)
    with pytest.raises(LeakFound, match="and private_test"):
        freeze(project, emil)
    failed = Snapshot.objects.get()
    assert not writing.artifact_store().exists(f"private/{failed.pk}/manifest.json")
