"""A scoring service: what is asked of it, what it may answer, and what happens when it fails."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from tests.workers.recipes.language import user
from workers.config.parsing import read
from workers.config.rewards import HttpSettings
from workers.contract.events import RecipeError
from workers.rewards.cache import CachedReward, ScoreCache
from workers.rewards.external import HttpReward
from workers.service import MOST_BYTES

URL = "https://judge.example/score"
SECRET = "s3cret-token"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_HOSTS", "judge.example, 127.0.0.1")
    monkeypatch.setenv("REWARD_TOKEN_JUDGE", SECRET)
    monkeypatch.setenv("NO_PROXY", "*")


class Service:
    """Answers as `reply` says: a response, or a list of them for one request after another."""

    def __init__(self, reply: Callable[[httpx2.Request], httpx2.Response] | list) -> None:
        self.requests: list[httpx2.Request] = []
        self.waits: list[float] = []
        self._reply = reply

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        self.requests.append(request)
        reply = self._reply if callable(self._reply) else self._reply.pop(0)
        answer = reply(request) if callable(reply) else reply
        if isinstance(answer, Exception):
            raise answer
        return answer

    def source(self, **fields: object) -> HttpReward:
        settings, errors = read(HttpSettings, {"url": URL, "concurrency": 1} | fields)
        assert not errors
        return HttpReward(
            settings, transport=httpx2.MockTransport(self), pause=self.waits.append, seed=0
        )


def lengths(request: httpx2.Request) -> httpx2.Response:
    items = json.loads(request.content)["items"]
    return httpx2.Response(200, json={"scores": [len(item["response"]) for item in items]})


def answer(*scores: object, **fields: object) -> httpx2.Response:
    return httpx2.Response(200, json={"scores": list(scores), **fields})


def ask(source: HttpReward | CachedReward, *texts: str):
    return source.score([user("why?")] * len(texts), list(texts))


def failure(source: HttpReward, *texts: str) -> RecipeError:
    with pytest.raises(RecipeError) as raised:
        ask(source, *(texts or ("a", "b")))
    assert SECRET not in str(raised.value)
    assert "judge.example/score" in raised.value.message
    return raised.value


def test_texts_are_posted_in_batches_with_the_token_and_come_back_in_order() -> None:
    service = Service(lengths)
    source = service.source(batch_size=2, concurrency=3, token_env="REWARD_TOKEN_JUDGE")
    found = ask(source, "a", "bb", "", "dddd", "ccc")
    assert found.values == [1.0, 2.0, 0.0, 4.0, 3.0]
    assert found.parts == {"http": found.values}
    sizes = sorted(len(json.loads(r.content)["items"]) for r in service.requests)
    assert sizes == [1, 2, 2]
    first = service.requests[0]
    assert first.headers["Authorization"] == f"Bearer {SECRET}"
    assert json.loads(first.content)["items"][0] == {"prompt": user("why?"), "response": "a"}
    assert ask(source).values == []


def test_what_concords_own_api_answers_is_understood() -> None:
    service = Service(
        [
            answer(
                {
                    "score": 1.5,
                    "parts": {"m0": 1.0, "m1": 2.0},
                    "disagreement": 0.5,
                    "truncated": True,
                },
                {
                    "score": -1.5,
                    "parts": {"m0": -1.0, "m1": -2.0},
                    "disagreement": 0.1,
                    "truncated": False,
                },
                id="x",
                model="checkpoint-7",
                cached=1,
                precision="float32",
            )
        ]
    )
    found = ask(service.source(version="checkpoint-7"), "a", "b")
    assert found.values == [1.5, -1.5]
    assert found.parts == {"m0": [1.0, -1.0], "m1": [2.0, -2.0]}
    assert (found.disagreement, found.cut, found.truncated) == ([0.5, 0.1], [True, False], 1)


def test_request_and_answer_fit_the_schemas_of_concords_own_api() -> None:
    """What we post passes its input schema; what its output schema writes passes our reading."""
    from apps.evaluation.api.score import ScoreIn, ScoresOut

    def concord(request: httpx2.Request) -> httpx2.Response:
        asked = ScoreIn.model_validate_json(request.content)
        row = {"score": 1.5, "parts": {"model": 1.5}, "disagreement": None, "truncated": False}
        told = {"id": "x", "model": "7", "cached": 0, "precision": "float32"}
        scored = ScoresOut.model_validate(told | {"scores": [row for _ in asked.items]})
        return httpx2.Response(200, text=scored.model_dump_json())

    found = ask(Service(concord).source(version="7"), "a", "b", "c")
    assert (found.values, found.parts["model"]) == ([1.5] * 3, [1.5] * 3)


def test_scores_that_are_not_ready_are_fetched_where_concord_keeps_them() -> None:
    waiting = httpx2.Response(202, json={"id": "9f2c-1", "model": "7", "scorer_alive": True})
    service = Service([waiting, waiting, answer(1.0, model="7")])
    source = service.source(url="https://judge.example/api/v1/models/7/score")
    assert ask(source, "a").values == [1.0]
    assert [(r.method, r.url.path) for r in service.requests[1:]] == [
        ("GET", "/api/v1/scores/9f2c-1")
    ] * 2
    astray = httpx2.Response(202, headers={"Location": "https://elsewhere.example/x"})
    assert "another host" in failure(Service([astray]).source()).message
    sly = httpx2.Response(202, json={"id": "../../admin"})
    with pytest.raises(RecipeError, match="id:"):
        ask(Service([sly]).source(url="https://judge.example/models/7/score"), "a")


def test_people_and_blocks_of_the_service_ride_along() -> None:
    service = Service([answer({"score": 1, "blocked": True, "review": "unsafe"}, {"score": 2})])
    found = ask(service.source(), "a", "b")
    assert (found.blocked, found.reviews) == ([True, False], ["unsafe", None])


@pytest.mark.parametrize(
    "passing",
    [
        httpx2.Response(429),
        httpx2.Response(500),
        httpx2.Response(503, text="busy"),
        httpx2.ConnectError("refused"),
        httpx2.ReadTimeout("slow"),
        httpx2.RemoteProtocolError("hung up"),
    ],
)
def test_what_may_pass_is_tried_again_after_longer_and_longer_waits(passing: object) -> None:
    service = Service([passing, passing, lengths])
    source = service.source()
    assert ask(source, "abc").values == [3.0]
    assert source.tries == 3
    first, second = service.waits
    assert 0.25 <= first <= 0.5 <= second <= 1.0


def test_a_service_that_says_when_to_come_back_is_heard() -> None:
    replies = [httpx2.Response(429, headers={"Retry-After": s}) for s in ("7", "9999", "soon")]
    service = Service([*replies, lengths])
    ask(service.source(), "a")
    assert service.waits[:2] == [7.0, 60.0]
    assert service.waits[2] <= 2.0


def test_tries_end_and_the_last_failure_is_told_without_the_token() -> None:
    service = Service(lambda request: httpx2.Response(503, text=f"no {SECRET} today"))
    found = failure(service.source(retries=2, token_env="REWARD_TOKEN_JUDGE"))
    assert (found.kind, len(service.requests)) == ("reward_service", 3)
    assert "3 tries" in found.message
    assert "503 no … today" in found.message


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_what_cannot_pass_is_not_tried_again(status: int) -> None:
    service = Service(lambda request: httpx2.Response(status, text="the reason"))
    assert f"{status} the reason" in failure(service.source()).message
    assert (len(service.requests), service.waits) == (1, [])


def test_a_redirect_is_not_followed_so_the_token_goes_nowhere_else() -> None:
    away = httpx2.Response(307, headers={"Location": "https://elsewhere.example/score"})
    service = Service(lambda request: away)
    source = service.source(token_env="REWARD_TOKEN_JUDGE")
    assert "307:" in failure(source).message
    assert [request.url.host for request in service.requests] == ["judge.example"]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (httpx2.Response(200, text="<html>"), "is no JSON"),
        (httpx2.Response(200, text="[" * 100_000), "is no JSON"),
        (httpx2.Response(200, json=[1, 2]), "is no object"),
        (httpx2.Response(200, json={}), "scores: must be a list"),
        (answer(1.0), "scores: has 1 entries for 2 items"),
        (answer(1.0, "2"), "scores[1].score: must be a finite number, not '2'"),
        (answer(1.0, True), "scores[1].score: must be a finite number, not True"),
        (
            httpx2.Response(200, text='{"scores": [1, NaN]}'),
            "scores[1].score: must be a finite number, not nan",
        ),
        (httpx2.Response(200, text='{"scores": [1e999, 1]}'), "scores[0].score: must be a finite"),
        (answer({}, 1), "scores[0].score: must be a finite number, not None"),
        (answer({"score": 1, "parts": []}, 1), ""),
        (answer({"score": 1, "parts": [1]}, 1), "scores[0].parts: must be an object"),
        (answer({"score": 1, "parts": {"a": "x"}}, 1), "scores[0].parts.a: must be a finite"),
        (answer({"score": 1, "parts": {"a": 1}}, 1), "scores[1].parts: must have the same names"),
        (answer({"score": 1, "blocked": "no"}, 1), "scores[0].blocked: must be true or false"),
        (answer({"score": 1, "review": 1}, 1), "scores[0].review: must be a text or null"),
        (answer({"score": 1, "disagreement": 1}, 1), "disagreement: must be given for every item"),
        (answer(1, 2, version=3), "version: must be a text"),
        (httpx2.Response(200, content=b" " * (MOST_BYTES + 1)), "longer than 8,000,000 bytes"),
    ],
)
def test_an_answer_that_is_not_as_agreed_stops_the_run_and_names_the_field(
    reply: httpx2.Response, told: str
) -> None:
    service = Service([reply])
    if not told:
        assert ask(service.source(), "a", "b").values == [1.0, 1.0]
        return
    found = failure(service.source())
    assert found.kind == "reward_service_answer"
    assert told in found.message


def test_a_model_that_is_swapped_behind_the_address_is_noticed() -> None:
    changed = Service([answer(1, version="v1"), answer(1, version="v2")]).source()
    ask(changed, "a")
    assert failure(changed, "a").kind == "reward_service_version"
    for reply in (answer(1, version="v2"), answer(1)):
        source = Service([reply]).source(version="v1")
        assert failure(source, "a").kind == "reward_service_version"


def test_parts_that_change_their_names_are_noticed() -> None:
    replies = [answer({"score": 1, "parts": {name: 1}}) for name in "ab"]
    source = Service(replies).source()
    ask(source, "a")
    assert "['b'], and were ['a']" in failure(source, "a").message


def test_one_batch_that_fails_for_good_ends_the_others() -> None:
    def fussy(request: httpx2.Request) -> httpx2.Response:
        bad = b"bad" in request.content
        return httpx2.Response(400, text="bad text") if bad else httpx2.Response(503)

    service = Service(fussy)
    source = service.source(batch_size=1, concurrency=2, retries=3)
    source._wait = source._stop.wait  # the real one, which ends with the others
    assert "400 bad text" in failure(source, "a", "bad", "b", "c").message


def test_texts_over_the_limits_are_not_sent() -> None:
    service = Service(lengths)
    assert failure(service.source(), "x" * 100_001).kind == "reward_service_limit"
    assert service.requests == []
    ask(service.source(), *["x" * 90_000] * 5)
    assert [len(json.loads(r.content)["items"]) for r in service.requests] == [4, 1]


def test_a_host_the_worker_does_not_list_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for hosts in ("", "other.example", "example"):
        monkeypatch.setenv("REWARD_HOSTS", hosts)
        with pytest.raises(RecipeError) as raised:
            Service(lengths).source()
        assert raised.value.kind == "host_not_allowed"


def test_a_token_that_is_not_there_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REWARD_TOKEN_JUDGE")
    with pytest.raises(RecipeError, match="REWARD_TOKEN_JUDGE"):
        Service(lengths).source(token_env="REWARD_TOKEN_JUDGE")


def test_a_service_with_a_version_is_asked_once_for_each_exact_text() -> None:
    def judged(request: httpx2.Request) -> httpx2.Response:
        items = json.loads(request.content)["items"]
        told = {"score": 1.0, "truncated": True, "blocked": True, "review": "why"}
        return answer(*[told for _ in items], version="v1")

    service = Service(judged)
    source = CachedReward(service.source(version="v1"), f"{URL} v1", ScoreCache(None))
    first = ask(source, "a", "a ", "a")
    assert first.known == [False, False, True]
    again = ask(source, "a ", "a")
    assert (again.known, again.cut, again.blocked) == ([True] * 2, [True] * 2, [True] * 2)
    assert again.reviews == ["why", "why"]
    assert len(service.requests) == 1


# --- over a real connection ---


@pytest.fixture
def server() -> Iterator[tuple[str, dict]]:
    """A server on this machine; `state` says what it does."""
    state: dict = {"asked": 0, "drip": threading.Event()}
    counting = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with counting:  # requests come at once
                state["asked"] += 1
                number = state["asked"]
            items = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["items"]
            body = json.dumps({"scores": [len(item["response"]) for item in items]}).encode()
            if number == 1:
                self.connection.close()  # hangs up on the first
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.path == "/drip":
                for _ in range(200):
                    self.wfile.write(b" ")
                    if state["drip"].wait(0.02):
                        return
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", state
        state["drip"].set()
        http.shutdown()


def test_a_real_server_that_hangs_up_once_is_asked_again(server: tuple[str, dict]) -> None:
    url, state = server
    source = HttpReward(HttpSettings(url=url, batch_size=2), pause=lambda _: None)
    assert ask(source, *"abcde").values == [1.0] * 5
    assert state["asked"] == 4


def test_a_server_that_answers_byte_by_byte_is_not_waited_for(server: tuple[str, dict]) -> None:
    url, state = server
    state["asked"] = 1
    settings = HttpSettings(url=f"{url}/drip", timeout_s=0.2, retries=0)
    with pytest.raises(RecipeError, match=r"1 tries, .* no whole"):
        ask(HttpReward(settings), "a")
