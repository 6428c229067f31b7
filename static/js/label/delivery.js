/* How the answers of this page reach the server: written to the outbox, sent by htmx, and taken off
   it when the server says so. What fails stays in the outbox, which sends it again. */
(() => {
  const { outbox, drafts } = window.concord;
  const keyOf = (config) => {
    const sent = config.formData;
    const f = config.elt.closest?.("form[data-ballot]");
    if (config.verb !== "post" || !f || config.elt.matches("[data-withdraw]")) return null;
    return sent.has("reason") ? `skip.${sent.get("slot")}` : sent.get("key");
  };
  const say = (text) => {
    const region = document.getElementById("announce");
    if (region) region.textContent = text;
    window.concord.answer.say(text);
  };

  document.addEventListener("htmx:beforeRequest", (event) => {
    const config = event.detail.requestConfig;
    const key = keyOf(config);
    if (!key) return;
    const f = config.elt.closest("form[data-ballot]");
    drafts.save();
    const body = [...config.formData].filter(([name]) => name !== "csrfmiddlewaretoken");
    const written = [config.formData.get("rationale"), config.formData.get("improvement")].filter(Boolean);
    outbox.add({
      key,
      url: new URL(config.path, location.href).pathname,
      who: f.dataset.who,
      body,
      at: Date.now(),
      held: Date.now() + outbox.holds,
      draft: drafts.keyOf(f),
      text: key.startsWith("skip.") ? "" : written.join("\n\n"),
    });
  });

  // Stored, or refused with the reason on the page that comes.
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    const { xhr, requestConfig } = event.detail;
    const key = keyOf(requestConfig);
    if (!key) return;
    if (xhr.getResponseHeader("Concord-Stored")) {
      outbox.stored(key);
      return;
    }
    if (xhr.getResponseHeader("HX-Redirect")) {
      // signed out: stay, and say so
      event.preventDefault();
      outbox.release(key, "signed-out");
      return;
    }
    const code = xhr.getResponseHeader("Concord-Refused");
    if (!code || xhr.status >= 400) return;
    const same = new RegExp(`data-ballot="${requestConfig.elt.closest("form").dataset.ballot}"`).test(
      xhr.responseText,
    );
    const text = outbox.items().find((item) => item.key === key)?.text;
    // the page that comes says why
    if (!same && text) outbox.refuse(key, "An answer was not counted; what you wrote with it is kept here.");
    else outbox.settle(key, { keep: same });
  });

  const failed = (event, why) => {
    const key = keyOf(event.detail.requestConfig ?? {});
    if (key) outbox.release(key, why);
    else if (event.detail.elt?.closest?.("#pair"))
      say("The server cannot be reached; nothing was changed. Try again.");
    document.querySelectorAll(".choice.pressed").forEach((one) => one.classList.add("waiting"));
  };
  document.addEventListener("htmx:sendError", (event) => failed(event, "offline"));
  document.addEventListener("htmx:timeout", (event) => failed(event, "offline"));
  document.addEventListener("htmx:sendAbort", (event) => failed(event, "offline"));
  document.addEventListener("htmx:responseError", (event) => {
    // Also what looks final: a token that signing in has changed, which the outbox renews.
    failed(event, event.detail.xhr.status >= 500 ? "server" : "retry");
  });

  // What this page shows has been delivered from the outbox: on with the next pair.
  document.addEventListener("outbox:done", (event) => {
    const f = window.concord.answer.form();
    const { key } = event.detail;
    if (!f || (f.elements.key.value !== key && key !== `skip.${f.elements.slot?.value}`)) return;
    drafts.forget();
    htmx.ajax("GET", f.dataset.home, { target: "#pair", swap: "outerHTML" });
  });
})();
