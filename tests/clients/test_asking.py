"""The client asks models by hand, against a running server."""

import pytest
from pytest_django.live_server_helper import LiveServer

from apps.accounts.models import Project, User
from apps.evaluation import dispatch
from apps.training.models import Run
from concord import Client, ConcordError
from tests.clients.test_live import token_of
from tests.evaluation.assessed import model_make
from tests.workers.asked import emptied
from workers.contract import asking
from workers.contract.asking import Answer, AskReply
from workers.contract.channel import to_json
from workers.contract.wire import alive_key

redis_client = pytest.fixture(emptied)


def test_two_models_are_asked_by_hand_and_waited_for(
    transactional_db: None,
    live_server: LiveServer,
    project: Project,
    emil: User,
    redis_client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = [model_make(project, by=emil, name=name) for name in ("first", "second")]
    Run.objects.filter(project=project).update(kind=Run.Kind.SFT)
    redis_client.set(alive_key(asking.ANSWERER), "here:1", ex=60)
    look, looks = dispatch.question_read, []

    def answers_at_the_second_look(question_id: str):
        looks.append(question_id)
        answers = tuple(Answer(asking.ENDED, text, 1, 0.1) for text in ("So.", "Because."))
        if len(looks) == 2:
            reply = to_json(AskReply(question_id, answers))
            redis_client.set(asking.reply_key(question_id), reply)
        return look(question_id)

    monkeypatch.setattr(dispatch, "question_read", answers_at_the_second_look)
    seen: list[bool] = []
    try:
        with Client(live_server.url, token_of(emil, "read", "train")) as concord:
            ours = concord.project(project.slug).models
            found = ours.ask(
                [one.pk for one in models],
                [{"role": "user", "content": "Why?"}],
                seed=3,
                every=0.05,
                on_progress=lambda told: seen.append(told.live),
            )
            assert [one.text for one in found.answers] == ["So.", "Because."]
            assert [one.model for one in found.answers] == [one.pk for one in models]
            assert seen == [False]
            with pytest.raises(ConcordError) as refused:
                ours.ask([models[0].pk], "Why?", temperature=-1)
            assert refused.value.field == "temperature"
            with pytest.raises(TimeoutError):
                ours.ask([models[0].pk], "Why?", every=0.05, timeout=0.01)
        assert redis_client.exists(asking.stop_key(looks[-1]))
    finally:
        redis_client.delete(alive_key(asking.ANSWERER))
