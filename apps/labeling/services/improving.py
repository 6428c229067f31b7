"""An annotator's improved version of the better answer, kept as a response written by a person."""

from django.db import transaction

from apps.common.errors import DomainError
from apps.labeling.models import Response
from apps.labeling.texts import BadMessages, fingerprint, messages_from


def improvement_store(*, text: str, chosen: int | None, annotator: int) -> int | None:
    """The id of the response this improvement is, made where it is new; None without one.

    chosen: the response it improves on, whose last turn it replaces. A text that is the same as
    that one is no improvement, and none is stored. Errors name the field `improvement`.
    """
    if not text:
        return None
    if chosen is None:
        raise DomainError(
            "Say which answer is better to improve it, or leave the improvement out.",
            field="improvement",
        )
    better = Response.objects.only("prompt_id", "messages", "text_hash").get(pk=chosen)
    try:
        turn = messages_from(text, role=better.messages[-1]["role"])
    except BadMessages as error:
        raise DomainError(f"The improved answer {error}.", field="improvement") from None
    messages = [*better.messages[:-1], *turn]
    text_hash = fingerprint(messages)
    if text_hash == better.text_hash:
        return None
    with transaction.atomic():
        found, _ = Response.objects.get_or_create(
            prompt_id=better.prompt_id,
            text_hash=text_hash,
            origin=Response.Origin.EDIT,
            origin_ref=f"person {annotator}",
            defaults={"messages": messages, "metadata": {"improves": chosen}},
        )
    return found.pk
