/* What was entered and not sent is kept in this browser, by person and pair, and comes back after a
   reload, a lost session, an expired lease or a closed tab. It goes when the answer is stored. */
(() => {
  const PREFIX = "concord.draft.";
  const KEPT_FOR = 30 * 86_400_000;
  const PAUSE = 150;
  const SINGLE = ["rationale", "improvement"];
  const concord = (window.concord ??= {});
  const { answer } = concord;
  let form = null;
  let blank = ""; // what the server gave, as a draft
  let timer = 0;

  const keyOf = (f) => `${PREFIX}${document.body.dataset.person}.${f.dataset.answerForm}`;

  const collect = (f) => {
    const ticks = [...f.querySelectorAll("input[type=radio]:checked")].map((one) => [one.name, one.value]);
    const many = (name) => [...f.querySelectorAll(`input[name=${name}]:checked`)].map((one) => one.value);
    return {
      answer: f.querySelector(".choice[aria-pressed=true]")?.value ?? "",
      ticks,
      reasons: many("reasons"),
      flags: many("flags"),
      rationale: f.elements.rationale?.value ?? "",
      improvement: f.elements.improvement?.value ?? "",
      from: f.querySelector("[data-improve]")?.dataset.from ?? "",
      improving: Boolean(f.querySelector("[data-improve]")?.open),
    };
  };

  const save = () => {
    clearTimeout(timer);
    timer = 0;
    if (!form?.isConnected) return;
    const now = JSON.stringify(collect(form));
    try {
      if (now === blank) localStorage.removeItem(keyOf(form));
      else localStorage.setItem(keyOf(form), JSON.stringify({ at: Date.now(), given: JSON.parse(now) }));
    } catch {
      /* full or forbidden: the page still holds it */
    }
  };
  const soon = (event) => {
    if (!event.target.closest?.("form[data-answer-form]")) return;
    clearTimeout(timer);
    timer = setTimeout(save, PAUSE);
  };

  const put = (f, given) => {
    for (const name of SINGLE) if (f.elements[name]) f.elements[name].value = given[name] ?? "";
    const ticks = new Map(given.ticks ?? []);
    f.querySelectorAll("input[type=radio]").forEach((one) => {
      one.checked = ticks.get(one.name) === one.value;
    });
    for (const name of ["reasons", "flags"]) {
      f.querySelectorAll(`input[name=${name}]`).forEach((one) => {
        one.checked = (given[name] ?? []).includes(one.value);
      });
    }
    const editor = f.querySelector("[data-improve]");
    if (editor) {
      if (given.from) editor.dataset.from = given.from;
      else delete editor.dataset.from;
      editor.open = Boolean(given.improving);
    }
    const offered = [...f.querySelectorAll(".choice")].some((one) => one.value === given.answer);
    if (offered || (!given.answer && answer.chosen(f))) answer.mark(f, given.answer);
    document.dispatchEvent(new CustomEvent("label:restored"));
    clearTimeout(timer); // nobody entered this just now
    timer = 0;
  };

  const minutes = (at) => {
    const n = Math.round((Date.now() - at) / 60_000);
    if (n < 1) return gettext("just now");
    const [text, amount] =
      n < 60
        ? [gettext("%(n)s min ago"), n]
        : n < 1440
          ? [gettext("%(n)s h ago"), Math.round(n / 60)]
          : [ngettext("%(n)s d ago", "%(n)s d ago", Math.round(n / 1440)), Math.round(n / 1440)];
    return interpolate(text, { n: amount }, true);
  };

  const begin = () => {
    form = document.querySelector("form[data-answer-form]");
    if (!form) return;
    blank = JSON.stringify(collect(form));
    let kept = null;
    try {
      kept = JSON.parse(localStorage.getItem(keyOf(form)));
    } catch {
      /* not ours */
    }
    if (!kept?.given || JSON.stringify(kept.given) === blank) return;
    put(form, kept.given);
    const note = form.querySelector("[data-restored]");
    const text = gettext("What you had entered here is back (kept %(when)s).");
    note.querySelector("span").textContent = interpolate(text, { when: minutes(kept.at) }, true);
    note.hidden = false;
  };

  const discard = () => {
    put(form, JSON.parse(blank));
    form.querySelector("[data-restored]").hidden = true;
    save();
    document.getElementById("pair-title")?.focus({ preventScroll: true });
  };

  const prune = () => {
    let keys = [];
    try {
      keys = Object.keys(localStorage).filter((one) => one.startsWith(PREFIX));
    } catch {
      /* forbidden */
    }
    for (const key of keys) {
      let at = 0;
      try {
        at = JSON.parse(localStorage.getItem(key)).at ?? 0;
      } catch {
        /* broken: drop it */
      }
      if (Date.now() - at > KEPT_FOR) localStorage.removeItem(key);
    }
  };

  for (const name of ["input", "change", "label:marked"]) document.addEventListener(name, soon);
  addEventListener("pagehide", () => {
    if (timer) save();
  });
  document.addEventListener("htmx:beforeSwap", () => {
    if (timer) save();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-discard]")) discard();
  });
  document.addEventListener("DOMContentLoaded", () => {
    prune();
    begin();
  });
  document.addEventListener("label:shown", begin);

  // What this page shows has been delivered: nothing of it is kept from here on.
  const forget = () => {
    clearTimeout(timer);
    timer = 0;
    form = null;
  };

  concord.drafts = { keyOf, save, forget };
})();

/* How the answers of this page reach the server: written to the outbox, sent by htmx, and taken off
   it when the server says so. What fails stays in the outbox, which sends it again. */
(() => {
  const { outbox, drafts } = window.concord;
  const keyOf = (config) => {
    const sent = config.formData;
    const f = config.elt.closest?.("form[data-answer-form]");
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
    const f = config.elt.closest("form[data-answer-form]");
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
    const same = new RegExp(
      `data-answer-form="${requestConfig.elt.closest("form").dataset.answerForm}"`,
    ).test(xhr.responseText);
    const text = outbox.items().find((item) => item.key === key)?.text;
    // the page that comes says why
    if (!same && text)
      outbox.refuse(key, gettext("An answer was not counted; what you wrote with it is kept here."));
    else outbox.settle(key, { keep: same });
  });

  const failed = (event, why) => {
    const key = keyOf(event.detail.requestConfig ?? {});
    if (key) outbox.release(key, why);
    else if (event.detail.elt?.closest?.("#pair"))
      say(gettext("The server cannot be reached; nothing was changed. Try again."));
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
