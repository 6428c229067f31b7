"""Hard constraints as a filter of what is generated, and answers rewritten by principles."""

import json
from collections.abc import Sequence

import pytest

from measures.messages import Messages
from tests.workers.recipes.language import Outcome, Workshop, tiny_llama, user, word_tokenizer
from workers.config import settings_for
from workers.config.parsing import read
from workers.config.rewards import RuleSettings
from workers.context import RunContext
from workers.contract.events import RecipeError
from workers.data.snapshot import read_preferences
from workers.models.loading import save_model
from workers.recipes.generate import CRITIQUE, REWRITE, revise, screen
from workers.rewards.rules import RulesReward

PROMPTS = [user(f"the {word} dog") for word in ("big", "small", "red", "blue", "good", "bad")]
NO_SUN = {"type": "rules", "rules": [{"name": "no_sun", "lacks": ["sun"], "on_violation": "block"}]}
ANSWERING = {"max_new_tokens": 6, "max_prompt_length": 16}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    shop = Workshop(tmp_path_factory.mktemp("revisions"))
    shop.put_model("short", tiny_llama())
    tokenizer, model = word_tokenizer(), tiny_llama()
    tokenizer.model_max_length = model.config.max_position_embeddings = 256
    save_model(model, tokenizer, shop.root / "long")
    shop._put("long", shop.root / "long", "checkpoint")
    shop.put_snapshot("prompts", train=[{"prompt": prompt} for prompt in PROMPTS])
    return shop


def generate(shop: Workshop, name: str, policy: str, **config: object) -> Outcome:
    return shop.run_here(
        shop.spec(name, "generate", ANSWERING | config, policy=policy, prompts="prompts")
    )


def rows_of(shop: Workshop, outcome: Outcome, name: str) -> list[dict]:
    uris = [saved["uri"] for saved in outcome.all("ArtifactSaved") if saved["name"] == name]
    return list(shop.store.lines(uris[0])) if uris else []


def test_outputs_that_break_a_hard_constraint_are_blocked_logged_and_shown(shop: Workshop) -> None:
    """Every pair there would be without the filter is kept, or holds the word and is blocked."""
    free = rows_of(shop, generate(shop, "free", "short"), "candidates.jsonl")
    outcome = generate(shop, "held", "short", filter=NO_SUN)
    kept = rows_of(shop, outcome, "candidates.jsonl")

    def says_it(row: dict) -> bool:
        return any("sun" in row[side]["text"].split() for side in ("response_a", "response_b"))

    def texts(rows: list[dict]) -> list[tuple[str, str]]:
        return [(row["response_a"]["text"], row["response_b"]["text"]) for row in rows]

    assert any(map(says_it, free))
    assert texts(kept) == texts([row for row in free if not says_it(row)])
    blocked = rows_of(shop, outcome, "blocked.jsonl")
    assert blocked
    assert {row["reason"].partition(":")[0] for row in blocked} == {"rule no_sun"}
    assert all("sun" in row["response"].split() and row["blocked"] for row in blocked)
    (alert,) = outcome.all("Alert")
    assert alert["rule"] == "blocked_outputs"
    assert alert["value"] == len(blocked) / 12
    assert len(outcome.all("ReviewRequested")) == len(blocked)
    assert {sample["bucket"] for sample in outcome.all("Sample")} == {"flagged"}
    lines = [line for log in outcome.all("Log") for line in log["lines"]]
    assert any(line.startswith("blocked: rule no_sun") for line in lines)
    assert outcome.summary["blocked"] == len(free) - len(kept)


def test_a_filter_that_nothing_breaks_changes_nothing_and_says_nothing(shop: Workshop) -> None:
    brief = {
        "type": "rules",
        "rules": [{"name": "b", "words": {"most": 9}, "on_violation": "block"}],
    }
    outcome = generate(shop, "clean", "short", filter=brief)
    assert outcome.summary["blocked"] == 0
    for kind in ("Alert", "ReviewRequested", "Sample", "Log"):
        assert outcome.all(kind) == []
    assert rows_of(shop, outcome, "blocked.jsonl") == []


def test_what_only_needs_review_passes_and_goes_to_people(shop: Workshop) -> None:
    rule = NO_SUN["rules"][0] | {"on_violation": "review"}
    outcome = generate(shop, "reviewed", "short", filter={"type": "rules", "rules": [rule]})
    assert outcome.summary["blocked"] == 0
    assert outcome.all("ReviewRequested")
    assert outcome.all("Alert") == []
    assert not any(row["blocked"] for row in rows_of(shop, outcome, "blocked.jsonl"))


def test_a_policy_rewrites_its_answers_and_the_pairs_are_preferences_too(shop: Workshop) -> None:
    principles = ["a good answer says good", "no rain"]
    outcome = generate(shop, "rewritten", "long", opponent="revision", principles=principles)
    rows = rows_of(shop, outcome, "candidates.jsonl")
    assert outcome.summary["too_long"] == 0
    assert 0 < len(rows) == outcome.summary["pairs"]
    for row in rows:
        assert row["revision"]["principle"] in principles
        assert row["response_a"]["text"] != row["response_b"]["text"]
        assert row["response_b"]["origin"]["checkpoint"] == "long"
    folder = shop.root / "as-data"
    folder.mkdir()
    found = rows_of(shop, outcome, "revisions.jsonl")
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    read_back = read_preferences(folder)
    assert [row.chosen for row in read_back] == [row["response_b"]["text"] for row in rows]
    assert [row.rejected for row in read_back] == [row["response_a"]["text"] for row in rows]
    again = generate(shop, "rewritten-again", "long", opponent="revision", principles=principles)
    texts = [row["response_b"]["text"] for row in rows_of(shop, again, "candidates.jsonl")]
    assert texts == [row["response_b"]["text"] for row in rows]


def test_a_conversation_that_leaves_no_room_is_left_out_and_counted(shop: Workshop) -> None:
    outcome = generate(shop, "cramped", "short", opponent="revision")
    assert outcome.summary == {"step": 2, "pairs": 0, "identical": 0, "too_long": 6}


# --- the effect, on a model that does as it is told ---


class Obedient:
    """Finds the word that its principle forbids, and leaves it out; it cannot read very long
    conversations, and `stubborn` questions it answers as before."""

    def __init__(self) -> None:
        self.heard: list[Messages] = []

    def __call__(self, conversations: Sequence[Messages]) -> list[str | None]:
        self.heard += conversations
        return [self._say(conversation) for conversation in conversations]

    def _say(self, conversation: Messages) -> str | None:
        if len(conversation[0]["content"]) > 100:
            return None
        answer = conversation[1]["content"]
        if conversation[-1]["content"] == REWRITE:
            stubborn = "stubborn" in conversation[0]["content"]
            return answer if stubborn else answer.replace(" sun", "")
        return "It says sun." if "sun" in answer else "It does not fall short."


def test_rewriting_by_a_principle_takes_out_what_the_filter_would_block(
    shop: Workshop,
) -> None:
    prompts = [user("weather?"), user("stubborn?"), user("x" * 101), user("dog?")]
    answers = ["the sun runs", "a sun", "a sun", "a dog"]
    model = Obedient()
    revisions = revise(model, prompts, answers, ["Never say sun."], seed=0)
    assert [one.text for one in revisions] == ["the runs", "a sun", None, "a dog"]
    assert revisions[0].critique == "It says sun."
    first, last = model.heard[0], model.heard[4]
    assert [m["role"] for m in last] == ["user", "assistant", "user", "assistant", "user"]
    assert first[-1]["content"] == CRITIQUE.format(principle="Never say sun.")
    source = RulesReward([rule for r in NO_SUN["rules"] if (rule := read(RuleSettings, r)[0])])
    folder = shop.root / "screened"
    folder.mkdir()
    context = RunContext(shop.spec("screened", "generate", {}), shop.store, folder)
    texts = [one.text for one in revisions if one.text]
    assert screen(context, source, prompts[:3], answers[:3]) == [False, False, False]
    assert screen(context, source, prompts[:3], texts) == [True, False, True]


def test_a_principle_keeps_its_name_and_names_change_no_draw() -> None:
    asked = {"prompts": [user("a")] * 20, "answers": ["b"] * 20, "principles": "xyz", "seed": 1}
    named = revise(Obedient(), **asked, names=("X", "Y", "Z"))
    assert [one.name.lower() for one in named] == [one.principle for one in named]
    plain = revise(Obedient(), **asked)
    assert [one.principle for one in plain] == [one.principle for one in named]
    assert {one.name for one in plain} == {""}


def test_another_model_here_may_criticise_and_rewrite(shop: Workshop) -> None:
    roles = {"policy": "short", "critic": "long", "prompts": "prompts"}
    config = ANSWERING | {"opponent": "revision", "temperature": 0.0}
    outcome = shop.run_here(shop.spec("by-critic", "generate", config, **roles))
    rows = rows_of(shop, outcome, "candidates.jsonl")
    assert outcome.summary["too_long"] == 0, "the policy itself would have no room"
    for row in rows:
        assert row["response_a"]["origin"]["checkpoint"] == "short"
        assert row["response_b"]["origin"]["role"] == "critic"
        assert row["response_b"]["origin"]["checkpoint"] == "long"
        assert (row["revision"]["principle_name"], row["revision"]["constitution"]) == ("", None)
    assert rows


def test_principles_are_drawn_by_the_seed() -> None:
    def drawn(seed: int) -> list[str]:
        return [
            r.principle for r in revise(Obedient(), [user("a")] * 20, ["b"] * 20, "xyz", seed=seed)
        ]

    assert drawn(1) == drawn(1) != drawn(2)
    assert set(drawn(1)) == set("xyz")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"filter": {"type": "rules"}}, "filter.rules: must hold at least one rule"),
        ({"filter": {"type": "model"}}, "filter: a reward model blocks nothing"),
        ({"principles": []}, "principles: must hold at least one"),
        ({"principles": ["Be kind.", " "]}, "principles: must hold at least one"),
        ({"principles": ["x", "y"], "principle_names": ["X"]}, "principle_names: must be a name"),
        ({"principle_names": ["X", "Y", " "]}, "principle_names: must be a name for each of 3"),
        ({"constitution": 0}, "constitution: 0 is under"),
    ],
)
def test_a_filter_or_principles_that_make_no_sense_are_refused(config: dict, told: str) -> None:
    with pytest.raises(RecipeError) as raised:
        settings_for("generate", config)
    assert told in raised.value.message
