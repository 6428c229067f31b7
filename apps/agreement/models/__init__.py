"""Stored figures of agreement, and what people ruled."""

from apps.agreement.models.reports import AgreementReport, AnnotatorReport, ConsensusReport
from apps.agreement.models.rulings import Ruling

__all__ = ["AgreementReport", "AnnotatorReport", "ConsensusReport", "Ruling"]
