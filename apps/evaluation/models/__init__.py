"""What evaluation keeps: protocols, reviews of models, head-to-heads, live dialogues, judges with
their verdicts, verdicts of people on answers, what people were asked about outputs, the suite that
every policy is evaluated on, results of other programs, and which policy each stage names."""

from apps.evaluation.models.dialogues import (
    Conversation,
    DialogueCampaign,
    DialogueSystem,
    DialogueTurn,
)
from apps.evaluation.models.head_to_head import HeadToHead, Look
from apps.evaluation.models.judges import (
    CertificateUse,
    CertifiedLabel,
    Judge,
    JudgeMeasurement,
    JudgeRun,
    JudgeVerdict,
    JudgeVersion,
    LabelCertificate,
)
from apps.evaluation.models.outside import OutsideResult
from apps.evaluation.models.promotion import (
    OverrideSignature,
    PromotionDecision,
    PromotionRequest,
    Stage,
    StageChange,
)
from apps.evaluation.models.protocols import EvaluationProtocol, ProtocolUse
from apps.evaluation.models.reviews import (
    AdversarialRound,
    ModelReview,
    OutputRanking,
    RankedOutput,
)
from apps.evaluation.models.suites import AutomaticSuite, PromptOverlap, SuiteLaunch
from apps.evaluation.models.verdicts import AuditSheet, FlaggedAnswer, SheetItem, Verdict

__all__ = [
    "AdversarialRound",
    "AuditSheet",
    "AutomaticSuite",
    "CertificateUse",
    "CertifiedLabel",
    "Conversation",
    "DialogueCampaign",
    "DialogueSystem",
    "DialogueTurn",
    "EvaluationProtocol",
    "FlaggedAnswer",
    "HeadToHead",
    "Judge",
    "JudgeMeasurement",
    "JudgeRun",
    "JudgeVerdict",
    "JudgeVersion",
    "LabelCertificate",
    "Look",
    "ModelReview",
    "OutputRanking",
    "OutsideResult",
    "OverrideSignature",
    "PromotionDecision",
    "PromotionRequest",
    "PromptOverlap",
    "ProtocolUse",
    "RankedOutput",
    "SheetItem",
    "Stage",
    "StageChange",
    "SuiteLaunch",
    "Verdict",
]
