"""Where apps further down the pipeline add to what apps before them show.

Imports point backwards only; an app fills these lists in its `AppConfig.ready`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from workers.contract.protocol import StatedProtocol


@dataclass(frozen=True, slots=True)
class NavItem:
    """An entry of the rail: shown to `roles`, in the order of `rank`.

    `url_name` takes the project's slug; `icon` names a symbol of static/icons.svg; `section` marks
    the entry as current when it equals the view's `nav` context variable. With `when` the entry is
    shown only in projects for which it holds. It stands in the group of its rank (`GROUPS`), and
    for `tabs` also in the bar of a phone, which has place for four.
    """

    rank: int
    label: str | Promise
    url_name: str
    icon: str
    section: str
    roles: frozenset[str]
    when: Callable[[Any], bool] | None = None
    tabs: frozenset[str] = frozenset()

    @property
    def group(self) -> str | Promise:
        return next(name for least, name in GROUPS if self.rank >= least)


# The groups of the rail by the least rank of their entries, the last first.
GROUPS = (
    (90, _("Project")),
    (60, _("Training")),
    (40, _("Quality")),
    (20, _("Data")),
    (10, _("Label")),
    (0, ""),
)


@dataclass(frozen=True, slots=True)
class Use:
    """Something that an app further down made of votes: a dataset, or a run or model after it.

    `url` is empty where there is no page; `words` say what became of it there; `tone` is a badge's.
    `later` is what was made of this in turn.
    """

    kind: str
    name: str
    url: str
    words: str
    tone: str = ""
    later: tuple["Use", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleRate:
    """How often people preferred a run's answers in a head-to-head that has ended.

    opponent, opponent_run: what it was compared with, and the run that made it, empty where no run
    of the project did; protocol: all that the head-to-head rests on but this run's own answers, so
    that two runs were asked the same of the same baseline where its hash is the same; None where it
    is seen from the second system, of which that does not hold; value, low, high: share of votes,
    None without an interval; n, people: votes, and who gave them; least: people or prompts that
    would do where there were too few; verdict: as it ended, at ended_at; url: its page.
    """

    opponent: str
    opponent_run: str
    protocol: StatedProtocol | None
    value: float | None
    low: float | None
    high: float | None
    n: int
    people: int
    verdict: str
    ended_at: datetime
    url: str
    least: int | None = None

    @property
    def is_enough(self) -> bool:
        """Whether something may be said of it."""
        return self.low is not None and self.high is not None and self.verdict not in NOT_TOLD


@dataclass(frozen=True, slots=True)
class WorkOffer:
    """Something a person may do in a project beside its label queue, on My work."""

    label: str
    url: str


@dataclass(frozen=True, slots=True)
class ErasureWish:
    """What becomes of the work of a person who is erased: their votes are kept under a pseudonym or
    count no more, and what they wrote about pairs stays (by nobody) or goes."""

    votes: str = "keep"
    remarks: str = "remove"

    @property
    def discards(self) -> bool:
        return self.votes == "discard"

    @property
    def removes(self) -> bool:
        return self.remarks == "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonDataset:
    """A frozen dataset that holds votes or texts of a person. pairs: decided with them, or texts;
    changed: of these, how many the project would decide otherwise without them; alone: pairs on
    which nobody else has voted; each text is both; uses: the runs and models made of it."""

    project: str
    name: str
    url: str
    pairs: int
    changed: int
    alone: int
    uses: tuple[Use, ...]


# Verdicts of a head-to-head by which nothing is claimed.
NOT_TOLD = frozenset({"too_few_people", "too_few_prompts", "one_sided", "waiting"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A finished run, as far as apps before it may show it.

    run: its id; method: its kind (sft, reward, dpo, ppo); seconds: of its attempts' work, wall
    time; splits: a reward model's report by file; win_rate: {value, low, high, n…} of an evaluation
    of its model against SFT, by the judge that it was not trained on; None where nobody has
    evaluated it. protocol: by what that was measured; None where it was before protocols were kept.
    people: of the newest head-to-head of its model with each opponent that has ended, newest first;
    checks: {lost, won, checks, standing, difference, worse} of its newest regression suite, where
    worse has the difference by category of those that became worse; latency_ms: of half of its
    answers, alone. judged_url, checks_url: pages of the evaluations that win_rate and checks are
    of.
    """

    run: str
    method: str
    method_words: str
    name: str
    url: str
    ended_at: datetime
    seconds: float | None
    splits: Mapping[str, Mapping[str, Any]]
    win_rate: Mapping[str, Any] | None
    protocol: StatedProtocol | None = None
    people: Sequence[PeopleRate] = ()
    checks: Mapping[str, Any] | None = None
    latency_ms: float | None = None
    judged_url: str = ""
    checks_url: str = ""


@dataclass(frozen=True, slots=True)
class JudgeLine:
    """What its assessment says of a judge: verdict is green, red or unmeasured."""

    line: str
    title: str
    verdict: str
    says: str


@dataclass(frozen=True, slots=True)
class JudgeStanding:
    """What is known of the judge of an evaluation: whether people agree with it, and its taste for
    length and format. assessed: whether anything was measured; url: its page."""

    model: str
    name: str
    url: str
    assessed: bool
    lines: Sequence[JudgeLine]


@dataclass(frozen=True, slots=True)
class RunTab:
    """A tab of a run's page that an app further down fills: the page loads `url_name`, which takes
    the project's slug and the run's id, as a fragment. `badge` says how many things wait there."""

    name: str
    label: str
    url_name: str
    badge: Callable[[Any], int] | None = None
    when: Callable[[Any], bool] | None = None


@dataclass(frozen=True, slots=True)
class Flagged:
    """An answer of a run that a person must see. `reason` is empty where the run says none;
    `sample` is the run's sample of it, None where it was asked about before it was kept."""

    step: int
    prompt: list[Any]
    response: str
    reason: str = ""
    sample: Any = None


@dataclass(frozen=True, slots=True)
class SamplePanel:
    """What an app further down shows and asks below each sample of a run: `template` gets `panel`,
    what `panels` gives for the sample's key, of a run, samples and the person who looks. `keys` is
    the template of its keyboard shortcuts, `script` the static file that serves them."""

    template: str
    keys: str
    script: str
    panels: Callable[[Any, Collection[Any], Any], Mapping[int, Any]]


@dataclass(frozen=True, slots=True)
class ModelPanel:
    """What an app further down shows on the page of a model or a dataset: `template` gets `panel`,
    what `find` gives for a checkpoint or a snapshot."""

    template: str
    find: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Bell:
    """What concerns somebody, in the rail: `count` takes a project, a person and their role, and
    must be cheap; `url_name` takes the project's slug."""

    url_name: str
    count: Callable[[Any, Any, str], int]


@dataclass(frozen=True, slots=True)
class Named:
    """Something that an event of the audit log names: how people call it, and its page."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class SetupStep:
    """A step of setting a project up: the page `url_name`, with the pages `within` it. The step is
    done when `done` says so of the project; `rank` orders them."""

    rank: int
    label: str | Promise
    url_name: str
    done: Callable[[Any], bool]
    within: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProjectQuestion:
    """Something that is asked where a project is made: one of `choices`, value to words, the first
    unless another is chosen; `save` gets the project and the answer, `answers` reads
    those of several projects back, by primary key."""

    name: str
    label: str | Promise
    choices: Callable[[], Mapping[str, str]]
    save: Callable[[Any, str], None]
    answers: Callable[[Sequence[Any]], Mapping[Any, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardLine:
    """A line of a model's card: a figure or a fact under the heading `part`, with where it is from:
    `source`, the id of a run or a hash, and `path`, of its page here. `result` is for programs:
    {metric, value, dataset, dataset_type, dataset_sha256}."""

    part: str
    name: str
    words: str
    source: str = ""
    path: str = ""
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NamedModel:
    """What a stage (candidate, staging, production) of a project names now; `path` is of the page
    that says why."""

    stage: str
    label: str
    checkpoint: str
    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFigure:
    """What a rule about people and data (`workers.rules.people`) reads of a project.

    metrics: by the names that the rule reads, empty where `missing` says what is not there yet;
    value, expected: as a page prints them; detail: whom or what it is about, in words, without
    names of people; page: its address without the site, where to act.
    """

    rule: str
    page: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    value: str = ""
    expected: str = ""
    detail: str = ""
    missing: str = ""


_nav: list[NavItem] = []
_home: list[str] = []
_overview: dict[str, str] = {}
_annotator_pages: dict[str, str] = {}
_dispute_pages: list[str] = []
_deletion_checks: list[Callable[[Any], None]] = []
_deletion_steps: list[Callable[[Any], None]] = []
_project_figures: list[tuple[Callable[[Any], list[ProjectFigure]], bool]] = []
_run_uses: list[Callable[[Any], list[str]]] = []
_copies: list[Callable[[Any, Any], None]] = []
_facts: list[Callable[[Collection[Any]], Mapping[str, Mapping[str, Any]]]] = []
_start_lines: list[Callable[[], str]] = []
_setup: dict[int, SetupStep] = {}
_questions: dict[str, ProjectQuestion] = {}
_health: dict[str, Callable[[], str | None]] = {}
_remarks: dict[str, Callable[[], str | None]] = {}
_vote_uses: list[Callable[[Collection[int]], Mapping[int, int]]] = []
_vote_traces: list[Callable[[Collection[int]], Mapping[int, list[Use]]]] = []
_comparison_uses: list[Callable[[Any, int], list[Use]]] = []
_comparison_pages: list[str] = []
_run_results: list[Callable[[Any], list[RunResult]]] = []
_judge_standing: list[Callable[[Any], JudgeStanding]] = []
_run_tabs: list[RunTab] = []
_people_rates: list[Callable[[Any], Mapping[str, Sequence[PeopleRate]]]] = []
_alert_listeners: list[Callable[[Any, Any], None]] = []
_end_listeners: list[Callable[[Any], None]] = []
_card_lines: list[Callable[[Any], list[CardLine]]] = []
_named_models: list[Callable[[Any], list[NamedModel]]] = []
_flagged_listeners: list[Callable[[Any, Flagged], None]] = []
_withdrawal_listeners: list[Callable[[Any, Sequence[Any], str], None]] = []
_sample_panel: list[SamplePanel] = []
_model_panels: list[ModelPanel] = []
_dataset_panels: list[ModelPanel] = []
_bell: list[Bell] = []
_person_datasets: list[Callable[[Any], Sequence[PersonDataset]]] = []
_person_erasures: list[Callable[[Any, Any, "ErasureWish"], Mapping[str, int]]] = []
_audit_subjects: dict[str, Callable[[Any, Collection[str]], Mapping[str, Named]]] = {}
_work_offers: list[Callable[[Any, Any], Sequence["WorkOffer"]]] = []
_voting: set[str] = set()
_uploads: set[str] = set()
_heavy: set[str] = set()
_self_limited: set[str] = set()
_playbook: list[Callable[[str, str], str]] = []
_protocol_pages: list[Callable[[str, str, str], str]] = []


def nav_add(item: NavItem) -> None:
    if item not in _nav:
        _nav.append(item)


def nav_for(role: str) -> list[NavItem]:
    return sorted((item for item in _nav if role in item.roles), key=lambda item: item.rank)


def home_set(url_name: str) -> None:
    """The page of a project on which people land; `url_name` takes the project's slug."""
    _home[:] = [url_name]


def home_of_project() -> str:
    return _home[0]


def overview_set(role: str, url_name: str) -> None:
    """The page that shows a role's work in all projects; `url_name` takes nothing."""
    _overview[role] = url_name


def overview_of(roles: Collection[str]) -> str | None:
    """The page across projects for somebody with these roles; None where no role has one."""
    return next((_overview[role] for role in roles if role in _overview), None)


def annotator_pages_set(everybody: str, one: str) -> None:
    """The pages with figures about annotators: `everybody` takes the project's slug, `one` the slug
    and a user's id."""
    _annotator_pages.update(everybody=everybody, one=one)


def dispute_page_set(url_name: str) -> None:
    """The page on which people rule on a comparison; it takes the project's slug and an id."""
    _dispute_pages[:] = [url_name]


def dispute_page() -> str:
    """Its URL name; empty where no app has such a page."""
    return next(iter(_dispute_pages), "")


def annotator_pages() -> dict[str, str]:
    """{"everybody": …, "one": …}, URL names for templates; empty where no app has such pages."""
    return _annotator_pages


def health_add(name: str, probe: Callable[[], str | None]) -> None:
    """A probe returns None when well, else what is wrong."""
    _health[name] = probe


def health_report() -> dict[str, str | None]:
    return {name: probe() for name, probe in sorted(_health.items())}


def health_remark_add(name: str, probe: Callable[[], str | None]) -> None:
    """Of a part that may be missing: what the probe says is told, and nobody is unwell for it."""
    _remarks[name] = probe


def health_remarks() -> dict[str, str]:
    """What there is to say about parts that may be missing, by name."""
    said = {name: probe() for name, probe in sorted(_remarks.items())}
    return {name: text for name, text in said.items() if text}


def deletion_check_add(check: Callable[[Any], None]) -> None:
    """`check` takes a project that is about to be deleted and raises a `DomainError` while the
    project has something that must end first."""
    if check not in _deletion_checks:
        _deletion_checks.append(check)


def deletion_check(project: Any) -> None:
    for check in _deletion_checks:
        check(project)


def deletion_step_add(step: Callable[[Any], None]) -> None:
    """`step` takes a project that is being deleted and lets go of what other projects point at. It
    raises a `DomainError` where that cannot be now; then nothing is deleted."""
    if step not in _deletion_steps:
        _deletion_steps.append(step)


def deletion_steps(project: Any) -> None:
    for step in _deletion_steps:
        step(project)


def project_figures_add(
    find: Callable[[Any], list[ProjectFigure]], *, of_votes: bool = False
) -> None:
    """`find` takes a project. `of_votes`: it reads every vote, and is asked only where some came,
    or an hour passed."""
    if (find, of_votes) not in _project_figures:
        _project_figures.append((find, of_votes))


def project_figures(project: Any, *, of_votes: bool) -> list[ProjectFigure]:
    """What rules about people and data read now."""
    return [one for find, heavy in _project_figures if heavy == of_votes for one in find(project)]


def run_uses_add(uses: Callable[[Any], list[str]]) -> None:
    """`uses` takes a run and says in words what of its app would be lost or broken without it."""
    if uses not in _run_uses:
        _run_uses.append(uses)


def run_uses(run: Any) -> list[str]:
    return [words for uses in _run_uses for words in uses(run)]


def project_copy_add(copy: Callable[[Any, Any], None]) -> None:
    """`copy` takes a project and a new one, and gives the new one its app's settings of the old."""
    if copy not in _copies:
        _copies.append(copy)


def project_settings_copy(source: Any, target: Any) -> None:
    for copy in _copies:
        copy(source, target)


def project_facts_add(find: Callable[[Collection[Any]], Mapping[str, Mapping[str, Any]]]) -> None:
    """`find` takes projects and gives {project: {comparisons, decided, last_vote_at}}."""
    if find not in _facts:
        _facts.append(find)


def project_facts(projects: Collection[Any]) -> Mapping[str, Mapping[str, Any]]:
    return next((find(projects) for find in _facts), {})


def start_line_add(line: Callable[[], str]) -> None:
    """`line` is asked when the server has started; empty where there is nothing to say."""
    if line not in _start_lines:
        _start_lines.append(line)


def start_lines() -> list[str]:
    return [f"  {text}" for text in (line() for line in _start_lines) if text]


def setup_step_add(step: SetupStep) -> None:
    _setup[step.rank] = step


def setup_steps() -> list[SetupStep]:
    return [step for _, step in sorted(_setup.items())]


def project_question_add(question: ProjectQuestion) -> None:
    _questions[question.name] = question


def project_questions() -> list[ProjectQuestion]:
    return list(_questions.values())


def vote_uses_add(count: Callable[[Collection[int]], Mapping[int, int]]) -> None:
    """`count` says of votes, by id, in how many frozen datasets each is; votes in none are left
    out."""
    if count not in _vote_uses:
        _vote_uses.append(count)


def vote_uses(votes: Collection[int]) -> dict[int, int]:
    """{vote: in how many frozen datasets it is already}, for those that are in one."""
    total: dict[int, int] = {}
    for count in _vote_uses:
        for vote, n in count(votes).items():
            total[vote] = total.get(vote, 0) + n
    return total


def vote_traces_add(find: Callable[[Collection[int]], Mapping[int, list[Use]]]) -> None:
    """`find` names what was made of each vote, by id; for readers, never for annotators."""
    if find not in _vote_traces:
        _vote_traces.append(find)


def vote_traces(votes: Collection[int]) -> dict[int, list[Use]]:
    """{vote: the frozen datasets it is in, each with the models trained on it}."""
    total: dict[int, list[Use]] = {}
    for find in _vote_traces:
        for vote, uses in find(votes).items():
            total.setdefault(vote, []).extend(uses)
    return total


def comparison_uses_add(find: Callable[[Any, int], list[Use]], *, page: str = "") -> None:
    """`find` takes a project and a comparison's id; `page`, a URL name that takes the project's
    slug and that id, shows the same at length."""
    if find not in _comparison_uses:
        _comparison_uses.append(find)
        _comparison_pages.extend([page] if page else [])


def comparison_uses(project: Any, comparison: int) -> list[Use]:
    """What the comparison's votes were used for, dataset by dataset, left out or kept."""
    return [use for find in _comparison_uses for use in find(project, comparison)]


def comparison_page() -> str:
    """The URL name of the page that follows a comparison's votes; empty where there is none."""
    return next(iter(_comparison_pages), "")


def run_results_add(find: Callable[[Any], list[RunResult]]) -> None:
    """`find` takes a project."""
    if find not in _run_results:
        _run_results.append(find)


def run_results(project: Any) -> list[RunResult]:
    """What the project has trained to the end, newest first."""
    found = [result for find in _run_results for result in find(project)]
    return sorted(found, key=lambda result: result.ended_at, reverse=True)


def people_rates_set(find: Callable[[Any], Mapping[str, Sequence[PeopleRate]]]) -> None:
    """find: of a project, by run; newest first."""
    _people_rates[:] = [find]


def people_rates(project: Any) -> Mapping[str, Sequence[PeopleRate]]:
    return _people_rates[0](project) if _people_rates else {}


def judge_standing_set(find: Callable[[Any], JudgeStanding]) -> None:
    """find: of a checkpoint that judges."""
    _judge_standing[:] = [find]


def judge_standing(checkpoint: Any) -> JudgeStanding | None:
    """None where no app assesses models."""
    return _judge_standing[0](checkpoint) if _judge_standing else None


def run_tab_add(tab: RunTab) -> None:
    if tab not in _run_tabs:
        _run_tabs.append(tab)


def run_tabs(run: Any) -> list[RunTab]:
    return [tab for tab in _run_tabs if tab.when is None or tab.when(run)]


def card_lines_add(find: Callable[[Any], list[CardLine]]) -> None:
    """`find` takes a checkpoint and says what its app knows of it."""
    if find not in _card_lines:
        _card_lines.append(find)


def card_lines(checkpoint: Any) -> list[CardLine]:
    return [line for find in _card_lines for line in find(checkpoint)]


def named_models_add(find: Callable[[Any], list[NamedModel]]) -> None:
    """`find` takes a project."""
    if find not in _named_models:
        _named_models.append(find)


def named_models(project: Any) -> list[NamedModel]:
    """What the project's stages name now; stages that name nothing are left out."""
    return [one for find in _named_models for one in find(project)]


def alert_listener_add(listen: Callable[[Any, Any], None]) -> None:
    """`listen` takes a run and an alert it has just raised, inside the transaction that stores the
    alert. It must be quick, and what it raises undoes the alert: see `alert_raised`."""
    if listen not in _alert_listeners:
        _alert_listeners.append(listen)


def alert_raised(run: Any, alert: Any) -> None:
    for listen in _alert_listeners:
        listen(run, alert)


def end_listener_add(listen: Callable[[Any], None]) -> None:
    """`listen` takes a run that has just ended, inside the transaction that says so."""
    if listen not in _end_listeners:
        _end_listeners.append(listen)


def run_ended(run: Any) -> None:
    for listen in _end_listeners:
        listen(run)


def flagged_listener_add(listen: Callable[[Any, Flagged], None]) -> None:
    """`listen` takes a run and an answer that a person must see, inside the transaction that stores
    the event. The same answer may come twice: when it is asked about, and as a sample."""
    if listen not in _flagged_listeners:
        _flagged_listeners.append(listen)


def answer_flagged(run: Any, flagged: Flagged) -> None:
    for listen in _flagged_listeners:
        listen(run, flagged)


def withdrawal_listener_add(listen: Callable[[Any, Sequence[Any], str], None]) -> None:
    """`listen` takes a run, the prompt and the answer that was flagged and must be forgotten."""
    if listen not in _withdrawal_listeners:
        _withdrawal_listeners.append(listen)


def answer_withdrawn(run: Any, prompt: Sequence[Any], response: str) -> None:
    for listen in _withdrawal_listeners:
        listen(run, prompt, response)


def sample_panel_set(panel: SamplePanel) -> None:
    _sample_panel[:] = [panel]


def sample_panel() -> SamplePanel | None:
    return next(iter(_sample_panel), None)


def model_panel_add(panel: ModelPanel) -> None:
    if panel not in _model_panels:
        _model_panels.append(panel)


def model_panels() -> list[ModelPanel]:
    return _model_panels


def dataset_panel_add(panel: ModelPanel) -> None:
    if panel not in _dataset_panels:
        _dataset_panels.append(panel)


def dataset_panels() -> list[ModelPanel]:
    return _dataset_panels


def bell_set(bell: Bell) -> None:
    _bell[:] = [bell]


def bell() -> Bell | None:
    return next(iter(_bell), None)


def audit_subjects_add(
    kinds: Collection[str], find: Callable[[Any, Collection[str]], Mapping[str, Named]]
) -> None:
    """`find` takes a project and subjects of events whose actions begin with one of `kinds`, and
    gives those that it knows, with one statement."""
    for kind in kinds:
        _audit_subjects[kind] = find


def audit_subjects(kind: str, project: Any, subjects: Collection[str]) -> Mapping[str, Named]:
    find = _audit_subjects.get(kind)
    return find(project, subjects) if find else {}


def person_datasets_add(find: Callable[[Any], Sequence[PersonDataset]]) -> None:
    """`find` takes a person and gives the frozen datasets that hold votes of theirs."""
    _person_datasets.append(find)


def person_datasets(user: Any) -> list[PersonDataset]:
    return [one for find in _person_datasets for one in find(user)]


def person_erasure_add(act: Callable[[Any, Any, ErasureWish], Mapping[str, int]]) -> None:
    """`act` takes a person, who erases them (None: a replay) and what becomes of their work; it
    does the app's part within the transaction and gives counts for the audit log."""
    _person_erasures.append(act)


def person_erase_parts(user: Any, by: Any, wish: ErasureWish) -> dict[str, int]:
    return {name: n for act in _person_erasures for name, n in act(user, by, wish).items()}


def work_offers_add(find: Callable[[Any, Any], Sequence[WorkOffer]]) -> None:
    """`find(project, user)`."""
    _work_offers.append(find)


def work_offers(project: Any, user: Any) -> list[WorkOffer]:
    return [one for find in _work_offers for one in find(project, user)]


def playbook_set(find: Callable[[str, str], str]) -> None:
    """`find` takes a project's slug and the name of a rule, and gives the address of what to do
    about it; empty where nothing is written about the rule."""
    _playbook[:] = [find]


def playbook_url(slug: str, rule: str) -> str:
    """Where the playbook says what to do about a rule that fired; empty where it says nothing."""
    return next((find(slug, rule) for find in _playbook), "")


def protocol_pages_set(find: Callable[[str, str, str], str]) -> None:
    """`find` takes a project's slug and the hashes of one protocol of an evaluation, or of two, and
    gives the page of it, or of what differs between them; the second hash may be empty."""
    _protocol_pages[:] = [find]


def protocol_url(slug: str, one: str, other: str = "") -> str:
    """Where a protocol is shown, or two beside each other; empty where no app shows them."""
    return next((find(slug, one, other) for find in _protocol_pages), "")


def voting_add(*url_names: str) -> None:
    """Addresses through which people vote: places of the web server are kept for them."""
    _voting.update(url_names)


def upload_add(*url_names: str) -> None:
    """Addresses that take files: they accept larger bodies than others."""
    _uploads.update(url_names)


def heavy_add(*url_names: str) -> None:
    """Addresses that read or change much of a project: fewer are served at once, and their
    statements may take longer. Downloads and reports are known by their paths
    (apps.common.rates)."""
    _heavy.update(url_names)


def self_limited_add(*url_names: str) -> None:
    """Addresses that mostly wait for another program and bound themselves how many do."""
    _self_limited.update(url_names)


def is_self_limited(url_name: str) -> bool:
    return url_name in _self_limited


def is_voting(url_name: str) -> bool:
    return url_name in _voting


def is_upload(url_name: str) -> bool:
    return url_name in _uploads


def is_heavy(url_name: str) -> bool:
    return url_name in _heavy


def heavy_names() -> frozenset[str]:
    return frozenset(_heavy)


def voting_names() -> frozenset[str]:
    return frozenset(_voting)


def self_limited_names() -> frozenset[str]:
    return frozenset(_self_limited)


def upload_names() -> frozenset[str]:
    return frozenset(_uploads)


# Views whose pages exist in every language of the site; all others are English.
_TRANSLATED: set[str] = set()


def translated(*view_names: str) -> None:
    """Names of views, with their app: "labeling:label"."""
    _TRANSLATED.update(view_names)


def is_translated(view_name: str) -> bool:
    return view_name in _TRANSLATED


# What makes a dataset of an imported file: the app that owns datasets.
_DATASET_MAKERS: list[Callable[..., Any]] = []


def dataset_maker_set(make: Callable[..., Any]) -> None:
    _DATASET_MAKERS[:] = [make]


def dataset_maker() -> Callable[..., Any]:
    return _DATASET_MAKERS[0]


# Files offered once more before an archived project is deleted: {name: (words, response of a
# project)}.
_LAST_EXPORTS: dict[str, tuple[str, Callable[[Any], Any]]] = {}


def last_export(name: str, words: str, respond: Callable[[Any], Any]) -> None:
    _LAST_EXPORTS[name] = (words, respond)


def last_exports() -> Mapping[str, tuple[str, Callable[[Any], Any]]]:
    return _LAST_EXPORTS
