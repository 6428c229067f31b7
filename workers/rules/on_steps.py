"""Rules of process reward models, which learn labels of single steps."""

from workers.rules.rule import PROBE, Rule, explains, of, over, under

STEPS = ("process_reward",)

STEPS_DATA = (
    Rule(
        name="step_labels_late",
        title="Labels belong to the step before",
        **of("data", STEPS),
        **over(1.5, "× the effect on its own score", "eval/steps/next_over_own"),
        patience=(2, 3),
        grace=1,
        **explains("minimal", PROBE),
        page="step-labels-shifted",
        source="One step of held-out trajectories is put in place of another's, and scores are "
        "compared. A label that is one step late is learnt from the text before, so that the next "
        "score moves and the step's own does not.",
    ),
)

STEPS_REWARD = (
    Rule(
        name="step_labels_unlearnt",
        title="Held-out steps are judged no better than by their frequencies",
        **of("reward", STEPS),
        **under(0.02, "share of the labels' entropy", "eval/steps/explained"),
        patience=(2, 3),
        grace=2,
        **explains("minimal"),
        page="step-labels-shifted",
        source="A model that learns anything that holds for new trajectories explains some of the "
        "labels' entropy. One whose labels are of the step that follows cannot: it has not been "
        "written yet. The evaluation before the first step and the next one say nothing yet.",
    ),
)
