// The page of a run while it lives and is looked at: what is new comes by a stream of events, rendered
// by the server. Where there is no stream the page polls, as it does without this script. The server
// says how long to wait, so that thousands do not come at once (`poll`, `spread`, in seconds).
(() => {
  const address = document.currentScript.dataset.stream;
  if (!window.EventSource) return;
  const CSRF_PLACE = "csrf-token-of-the-page";
  const HIDDEN_MS = 30_000;
  const LONGEST_MS = 60_000;
  let pollMs = 0;
  const live = {
    streaming: false,
    pause: () => Math.max(pollMs, document.hidden ? HIDDEN_MS : 0), // between two polls, at least
  };
  window.concord = Object.assign(window.concord ?? {}, { live });
  let source = null;
  let failures = 0;
  let spreadMs = 1000;
  let retry = 0;
  let fetching = 0;

  const head = () => document.getElementById("run-head");
  const polls = () => head()?.hasAttribute("hx-get"); // while the run lives
  const say = (name, detail) => document.dispatchEvent(new CustomEvent(`live:${name}`, { detail }));
  const soon = (act, most) => setTimeout(act, Math.random() * most);

  // --- polling: not while there is a stream, seldom while nobody looks, never faster than told

  const asked = {};
  document.addEventListener("htmx:beforeRequest", (event) => {
    const { elt, requestConfig } = event.detail;
    if (requestConfig.triggeringEvent || !["run-head", "diagnosis"].includes(elt.id)) return;
    const early = performance.now() - (asked[elt.id] ?? -Infinity) < live.pause();
    if (early || (live.streaming && elt.id === "run-head")) event.preventDefault();
    else asked[elt.id] = performance.now();
  });

  // --- how long ago the trainer was heard grows while nothing comes

  const QUIET_S = 15;
  let shownAt = performance.now();
  let shownHead = head();
  setInterval(() => {
    if (head() !== shownHead) {
      shownHead = head();
      shownAt = performance.now();
    }
    const line = shownHead?.querySelector("[data-age]");
    const n = Math.floor(Number(line?.dataset.age) + (performance.now() - shownAt) / 1000);
    if (!line || n < QUIET_S) return;
    const minutes = Math.floor(n / 60);
    line.querySelector("time").textContent = minutes
      ? interpolate(gettext("%(n)s min ago"), { n: minutes }, true)
      : interpolate(gettext("%(n)s s ago"), { n }, true);
  }, 1000);

  // --- the stream

  const take = ({ poll, spread }) => {
    if (poll) pollMs = poll * 1000;
    if (spread) spreadMs = spread * 1000;
  };
  const show = ({ html }) => {
    const token = document.querySelector("[name=csrfmiddlewaretoken]")?.value ?? "";
    htmx.swap(head(), html.replaceAll(CSRF_PLACE, token), { swapStyle: "outerHTML" });
  };
  const fetchTab = () => {
    if (fetching) return;
    fetching = soon(() => {
      fetching = 0;
      const url = new URL(location.href);
      htmx.ajax("GET", url.pathname + url.search, { target: "#run-head", swap: "outerHTML" });
    }, spreadMs);
  };
  const turn = (streaming) => {
    live.streaming = streaming;
    document.body.dataset.live = streaming ? "stream" : "polls";
  };
  const drop = () => {
    source?.close();
    source = null;
    clearTimeout(retry);
    if (live.streaming) {
      turn(false);
      asked["run-head"] = performance.now() - Math.random() * pollMs; // all lose it at once
      say("down");
    }
  };
  const connect = () => {
    if (source || document.hidden || !polls()) return;
    clearTimeout(retry);
    const query = new URLSearchParams(location.search);
    query.set("seen", head().dataset.seen);
    source = new EventSource(`${address}?${query}`, { withCredentials: true });
    const on = (name, act) =>
      source.addEventListener(name, (event) => {
        const data = JSON.parse(event.data);
        take(data);
        act(data);
      });
    on("hello", () => {
      failures = 0;
      turn(true);
    });
    on("page", (data) => {
      show(data);
      if (data.fetch) fetchTab();
    });
    on("points", (data) => say("points", data));
    on("stale", () => soon(() => say("stale"), spreadMs));
    on("end", drop);
    source.onerror = () => {
      drop(); // our own tries are told apart, and fewer each time
      failures += 1;
      const pause = Math.min(LONGEST_MS, 2000 * 2 ** failures);
      retry = setTimeout(connect, pause * (0.5 + Math.random()));
    };
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) drop();
    else connect();
  });
  addEventListener("pagehide", drop);
  addEventListener("pageshow", connect);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", connect);
  else connect();
})();
