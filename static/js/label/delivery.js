/* An answer that could not be delivered is kept, said so, and sent again until it arrives. The key
   in the form makes that safe: the server stores the same submit once. */
(() => {
  "use strict";
  const AGAIN = 4000;
  let waiting = null; // {button, timer}

  const ours = (event) => event.detail.elt?.closest?.("#pair") ?? null;

  const say = (text) => {
    const note = document.querySelector("[data-undelivered]");
    if (note) {
      note.hidden = !text;
      note.lastElementChild.textContent = text;
    }
    const region = document.getElementById("announce");
    if (region && text) region.textContent = text;
  };

  const send = () => {
    if (!waiting) return;
    const { button } = waiting;
    clearTimeout(waiting.timer);
    if (!button.isConnected) { waiting = null; return; }
    button.click();
  };

  const failed = (event, text) => {
    if (!ours(event)) return;
    const button = event.detail.requestConfig?.triggeringEvent?.submitter ?? document.querySelector(".choice.pressed");
    say(text);
    if (!button) return;
    button.classList.add("pressed");
    clearTimeout(waiting?.timer);
    waiting = { button, timer: setTimeout(send, AGAIN) };
  };

  const KEPT = "Not delivered yet: the server cannot be reached. Your answer is kept on this page and sent again by itself.";
  document.addEventListener("htmx:sendError", (event) => failed(event, KEPT));
  document.addEventListener("htmx:timeout", (event) => failed(event, KEPT));
  document.addEventListener("htmx:responseError", (event) => {
    const status = event.detail.xhr.status;
    if (status >= 500) failed(event, "Not stored yet: the server has a problem. Your answer is kept on this page and sent again by itself.");
    else if (ours(event)) say(status === 404 || status === 403
      ? "You cannot label here any more: you were signed out or your role has changed. Reload the page."
      : "The server did not accept this. Reload the page; nothing was counted.");
  });
  addEventListener("online", send);

  // After a sign-out the server answers with the sign-in page: keep the pair and say what to do.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target?.id !== "pair") return;
    if (event.detail.xhr.status === 200 && !/id="pair"/.test(event.detail.xhr.responseText)) {
      event.detail.shouldSwap = false;
      say("You were signed out. Sign in again in another tab, then press your answer once more; it is kept here.");
    }
  });
  document.addEventListener("label:shown", () => {
    clearTimeout(waiting?.timer);
    waiting = null;
  });
  addEventListener("beforeunload", (event) => { if (waiting) event.preventDefault(); });
})();
