"""The API: one router per app, mounted in pipeline order."""

from apps.accounts.api import router as accounts
from apps.agreement.api import router as agreement
from apps.agreement.api.disputes import router as disputes
from apps.common.api import api_make, api_urls
from apps.common.api_docs import Reference
from apps.evaluation.api.dialogues import router as dialogues
from apps.evaluation.api.head_to_heads import router as head_to_heads
from apps.evaluation.api.judges import router as judges
from apps.evaluation.api.models import router as reward_models
from apps.evaluation.api.outside import router as outside
from apps.evaluation.api.playground import router as playground
from apps.evaluation.api.promotion import router as promotion
from apps.evaluation.api.protocols import router as protocols
from apps.evaluation.api.rounds import router as rounds
from apps.evaluation.api.score import router as scores
from apps.evaluation.api.sheets import router as sheets
from apps.evaluation.api.suites import router as suites
from apps.evaluation.api.verdicts import router as verdicts
from apps.labeling.api import router as labeling
from apps.labeling.api.comments import router as comments
from apps.labeling.api.finding import router as finding
from apps.labeling.api.images import router as images
from apps.labeling.api.imports import router as imports
from apps.labeling.api.people import router as labeling_people
from apps.labeling.api.ratings import router as ratings
from apps.labeling.api.writing import router as writing
from apps.loop.api import router as overview
from apps.loop.api.pipelines import router as pipelines
from apps.monitoring.api.incidents import router as incidents
from apps.monitoring.api.people import router as people_alarms
from apps.monitoring.api.service import router as monitoring
from apps.monitoring.api.traffic import router as traffic
from apps.snapshots.api import router as snapshots
from apps.training.api.constitution import router as constitution
from apps.training.api.models import router as models
from apps.training.api.planning import router as planning
from apps.training.api.runs import router as training

api = api_make(
    title="Concord",
    version="1",
    description=(
        "People compare model answers; the comparisons become reward models and better policies. "
        "Send a token as `Authorization: Bearer …`; errors are JSON with a stable `code`, a "
        "`message`, and the `field` or `row` at fault."
    ),
    docs=Reference(),
)
for _router in (
    accounts,
    labeling,
    finding,
    comments,
    images,
    imports,
    labeling_people,
    ratings,
    writing,
    agreement,
    disputes,
    snapshots,
    constitution,
    planning,  # before what takes any word for the id of a run
    training,
    models,
    reward_models,
    rounds,
    protocols,
    suites,
    outside,
    scores,
    playground,
    dialogues,
    head_to_heads,
    judges,
    promotion,
    verdicts,
    sheets,
    monitoring,
    traffic,
    incidents,
    people_alarms,
    pipelines,
    overview,
):
    api.add_router("", _router)

urls = api_urls(api)
