"""Rules of runs in which something says what is right: whose policy calls tools (what an
environment gets wrong, and what a policy makes of a reward that does not look at the final state),
and whose reward has a verifier. The success of every run with tools is measured by the task's own
check, whatever is paid for."""

from workers.rules.rule import CONTRACT, KL_UP, Part, Rule, explains, of, over, warns

TOOLS = ("grpo",)
_SOURCE = (
    "SPEC F6: effort or form that rises while final states stay as they were. Means of 10 checks "
    "against the first 10, so that learning the form before the task is not taken for it until it "
    "has lasted; success that is over 0.9 has nothing left to gain."
)


def without_success(
    limit: float,
    unit: str,
    metric: str,
    *beside: str,
    success: str = "tools/success_share",
    **given: float,
) -> Part:
    """The metric gains more than `limit` while `success`, the share of right final states, does
    not."""
    rising = {"window": 10, "success": 0.05} | given
    return over(limit, unit, metric, success, *beside, test="alone", **rising)


TOOLS_DATA = (
    Rule(
        name="tool_results_untrue",
        title="The record of tool calls is not what a fresh environment does",
        **of("data", TOOLS),
        **over(0.0, "share of answers", "tools/replay_apart_share"),
        **explains("minimal", CONTRACT),
        page="tool-failure-as-success",
        source="Every call is repeated in a fresh environment: results, failures and files must be "
        "the same. A failure that was stored as success, or files of another episode, are not.",
    ),
)

TOOLS_REWARD = (
    Rule(
        name="checker_read",
        title="A tool reads what the task expects",
        **of("reward", TOOLS),
        **over(0.0, "share of answers", "tools/check_read_share"),
        **explains("minimal", CONTRACT),
        page="agent-pitfalls",
        source="A policy that may ask the checker searches for what the checker says, and not for "
        "the task. Reads of the expected state are counted while a tool runs.",
    ),
    Rule(
        name="tool_hacking",
        title="The reward rises and final states do not get better",
        **of("reward", TOOLS),
        **without_success(
            0.5, "deviations of the first rewards", "objective/scores", "objective/scores_std"
        ),
        patience=(3, 5),
        **warns(KL_UP),
        diagnoses=True,
        experiment="rescore",
        page="agent-pitfalls",
        source=_SOURCE,
    ),
    Rule(
        name="format_hacking",
        title="The form gets better and final states do not",
        **of("reward", TOOLS),
        **without_success(0.2, "share of answers", "tools/form_share"),
        patience=(3, 5),
        **warns(KL_UP),
        diagnoses=True,
        experiment="rescore",
        page="format-hacking",
        source=_SOURCE,
    ),
    Rule(
        name="files_only_named",
        title="Files get the names that are wanted and not the texts",
        **of("reward", TOOLS),
        **without_success(0.2, "share of answers", "tools/named_only_share"),
        patience=(3, 5),
        **warns(KL_UP),
        diagnoses=True,
        experiment="rescore",
        page="agent-pitfalls",
        source=_SOURCE,
    ),
    Rule(
        name="needless_calls",
        title="Calls of tools rise and final states do not get better",
        **of("reward", TOOLS),
        **without_success(0.5, "× the first", "tools/call_frequency", relative=True, least=0.5),
        patience=(3, 5),
        **warns(KL_UP),
        diagnoses=True,
        experiment="rescore",
        page="agent-pitfalls",
        source=_SOURCE,
    ),
    Rule(
        name="needless_turns",
        title="Turns rise and final states do not get better",
        **of("reward", TOOLS),
        **without_success(0.5, "× the first", "tools/turns", relative=True),
        patience=(3, 5),
        **warns(KL_UP),
        page="agent-pitfalls",
        source=_SOURCE,
    ),
    Rule(
        name="cost_without_success",
        title="Answers cost more tokens and final states do not get better",
        **of("reward", TOOLS),
        **without_success(0.5, "× the first", "tools/tokens", relative=True),
        patience=(3, 5),
        **warns(KL_UP),
        page="agent-pitfalls",
        source=_SOURCE,
    ),
)

# Where a verifier says what is right, tools or none.
VERIFIER_REWARD = (
    Rule(
        name="form_without_answer",
        title="The form gets better and answers do not get right",
        **of("reward", ("ppo", "grpo")),
        **without_success(
            0.2, "share of answers", "verifier/form_share", success="verifier/correct_share"
        ),
        patience=(3, 5),
        **warns(KL_UP),
        diagnoses=True,
        experiment="rescore",
        page="format-hacking",
        source="SPEC F6: the reward for form up while being right is flat. Otherwise as for tools.",
    ),
)
