"""The rows of the table of rules for a project: its people, its data, and what is due."""

from workers.rules.rule import OFF, WARN, Part, Rule, of, over

PROJECT = "project"  # the kind of what these rules judge: no run
_WARNS: Part = {"actions": (OFF, WARN), "action": WARN}
LEAST_PAIRS = 200  # a reward model that learned from fewer counts as one of so many


def _of(stage: str) -> Part:
    return of(stage, (PROJECT,)) | _WARNS


PEOPLE = (
    Rule(
        name="agreement_fell",
        title="Agreement fell",
        **_of("data"),
        **over(
            0.05,
            "share of vote pairs",
            "people/agreement_fall",
            "people/agreement_fall_errors",
            test="beyond_noise",
            errors=3.5,
        ),
        page="agreement-fell",
        source="The newest 300 counted votes against all before them. 3.5 standard errors: looked "
        "at after every 25 votes, 3 of 700 steady projects of 2,000 votes pass it.",
    ),
    Rule(
        name="agreement_fell_guideline",
        title="Agreement fell with the newest guidelines",
        **_of("data"),
        **over(
            0.05,
            "share of vote pairs",
            "people/guideline_fall",
            "people/guideline_fall_errors",
            test="beyond_noise",
            errors=3.5,
        ),
        page="agreement-fell",
        source="As agreement_fell, of the votes under the newest version that has any.",
    ),
    Rule(
        name="batch_off",
        title="People agree far less on one batch",
        **_of("data"),
        **over(
            0.1,
            "share of vote pairs",
            "people/batch_gap",
            "people/batch_gap_errors",
            test="beyond_noise",
            errors=4.0,
        ),
        page="batch-off",
        source="The batch that stands out most, of all with 30 pairs; 4 standard errors, since the "
        "worst of many is chosen.",
    ),
    Rule(
        name="gold_error_rose",
        title="More gold pairs are answered wrongly",
        **_of("data"),
        **over(
            0.05,
            "share of gold answers",
            "people/gold_error_rise",
            "people/gold_error_rise_errors",
            test="beyond_noise",
            errors=3.5,
        ),
        page="known-answers-missed",
        source="The newest 100 answers on gold pairs against all before them.",
    ),
    Rule(
        name="audit_error_rose",
        title="Audits contradict more votes",
        **_of("data"),
        **over(
            0.05,
            "share of audited votes",
            "people/audit_error_rise",
            "people/audit_error_rise_errors",
            test="beyond_noise",
            errors=3.5,
        ),
        page="known-answers-missed",
        source="The newest 100 audits against all before them.",
    ),
    Rule(
        name="audits_overdue",
        title="Audits are overdue",
        **_of("data"),
        **over(0.0, "votes", "people/audits_overdue"),
        page="people-work-due",
        source="Votes of the audit sample that waited longer than the project's settings allow.",
    ),
    Rule(
        name="annotator_flagged",
        title="Annotators are flagged and still count",
        **_of("data"),
        **over(0.0, "people", "people/annotators_flagged"),
        page="people-work-due",
        source="Flags are corrected for how many tests were made of everybody.",
    ),
    Rule(
        name="pairs_stuck",
        title="Pairs wait for a ruling",
        **_of("data"),
        **over(20.0, "pairs", "people/pairs_stuck"),
        page="people-work-due",
        source="Contested, or sent to review, and without a vote for a week.",
    ),
    Rule(
        name="label_spend",
        title="The label budget is nearly spent",
        **_of("data"),
        **over(0.9, "share of the budget", "people/budget_spent"),
        page="people-work-due",
        source="All votes at the price of a vote that the settings state.",
    ),
    Rule(
        name="reward_model_stale",
        title="The reward model is behind the votes",
        **_of("reward"),
        **over(
            0.5,
            "× the pairs it learned from",
            "people/pairs_since_reward_model",
            "people/pairs_of_reward_model",
            test="scaled",
            least=float(LEAST_PAIRS),
        ),
        page="models-behind",
        source="Half as many decided pairs again as it learned from change what it would learn.",
    ),
    Rule(
        name="evaluation_overdue",
        title="The model in service has not been evaluated lately",
        **_of("evaluation"),
        **over(30.0, "days", "people/days_since_evaluation"),
        page="models-behind",
        source="A month, in which prompts and judges change.",
    ),
    Rule(
        name="disk_filling",
        title="A disk is filling up",
        **_of("resources"),
        **over(0.9, "share of the disk", "people/disk_used"),
        page="disk-filling",
        source="As for a project's quota of space: a warning at nine tenths.",
    ),
)
