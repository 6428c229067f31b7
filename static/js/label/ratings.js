/* Rating by keyboard: a digit rates the card in focus, else the first without a value, and the next
   one is marked; Enter submits. What was entered is kept in this browser until it is sent. Without
   this script the radio buttons and the button do the same. */
(() => {
  const OFF = "concord.label.single-keys-off";
  const PREFIX = "concord.rating.";

  const typing = (target) =>
    target.closest?.("textarea, select, [contenteditable=true], input:not([type=checkbox], [type=radio])");
  const form = () => document.querySelector("form[data-rating]");
  const cards = () => [...document.querySelectorAll("[data-card]")];
  const rated = (card) => Boolean(card.querySelector(":checked"));
  const open = () => cards().find((card) => !rated(card));
  const mark = (card) => (card.querySelector(":checked") ?? card.querySelector("input")).focus();
  const menu = (name) => document.querySelector(`[data-extra="${name}"]`);

  const say = (text) => {
    const place = document.querySelector("[data-need]");
    place.textContent = text;
    place.hidden = !text;
  };

  const tell = () => {
    const place = document.querySelector("[data-done]");
    if (!place) return;
    const all = cards();
    place.textContent = interpolate(
      gettext("%(done)s of %(n)s"),
      { done: all.filter(rated).length, n: all.length },
      true,
    );
    place.hidden = false;
    if (!open()) say("");
    const has = document.querySelector("[data-has]");
    if (has) has.hidden = !form().elements.note.value.trim();
  };

  // --- drafts, by person and task
  const keyOf = (f) => `${PREFIX}${document.body.dataset.person}.${f.dataset.answerForm}`;
  const save = () => {
    const f = form();
    if ("editing" in f.dataset) return;
    const values = Object.fromEntries(
      [...f.querySelectorAll("[data-card] :checked")].map((one) => [one.name, one.value]),
    );
    try {
      localStorage.setItem(keyOf(f), JSON.stringify({ values, note: f.elements.note?.value ?? "" }));
    } catch {
      /* full or forbidden: the page still holds it */
    }
  };
  const restore = () => {
    const f = form();
    if ("editing" in f.dataset) return; // the task in hand keeps its draft meanwhile
    let kept = null;
    try {
      for (const name of Object.keys(localStorage)) {
        if (name === keyOf(f)) kept = JSON.parse(localStorage.getItem(name));
        else if (name.startsWith(`${PREFIX}${document.body.dataset.person}.`)) localStorage.removeItem(name); // sent, skipped or gone
      }
    } catch {
      return;
    }
    if (!kept || f.querySelector("[data-card] :checked")) return;
    for (const [name, value] of Object.entries(kept.values)) {
      const radio = f.querySelector(`input[name="${CSS.escape(name)}"][value="${CSS.escape(value)}"]`);
      if (radio) radio.checked = true;
    }
    if (f.elements.note) f.elements.note.value = kept.note;
  };

  // --- sending: by the outbox, which keeps the answer here until the server has it
  const send = (f, submitter) => {
    const given = new FormData(f, submitter);
    const isSkip = given.has("reason");
    const key = isSkip ? `skip.${given.get("slot")}` : given.get("key");
    window.concord.outbox.add({
      key,
      url: new URL(submitter?.getAttribute("formaction") ?? f.action, location.href).pathname,
      who: f.dataset.who,
      body: [...given].filter(([name]) => name !== "csrfmiddlewaretoken"),
      at: Date.now(),
      held: 0,
      draft: keyOf(f),
      text: isSkip ? "" : f.elements.note.value,
    });
    window.concord.outbox.deliver();
  };
  document.addEventListener("outbox:done", (event) => {
    const f = form();
    const { key } = event.detail;
    if (f?.dataset.home && (f.elements.key.value === key || key === `skip.${f.elements.slot?.value}`))
      location.assign(f.dataset.home);
  });

  // --- keys
  const rate = (digit) => {
    const focused = document.activeElement?.closest?.("[data-card]");
    const card = focused ?? open() ?? null;
    const radio = card?.querySelector(`[data-key="${digit}"]`);
    if (!radio) return false;
    radio.checked = true;
    radio.dispatchEvent(new Event("change", { bubbles: true }));
    const next = open();
    if (next) mark(next);
    else document.querySelector("[data-submit]").focus();
    return true;
  };

  const submit = () => {
    const card = open();
    if (!card) {
      form().requestSubmit(document.querySelector("[data-submit]"));
      return;
    }
    say(interpolate(gettext("Answer %(letter)s has no value yet."), { letter: card.dataset.card }, true));
    mark(card);
  };

  const skip = () => {
    const details = menu("skip");
    if (!details) return;
    details.open = !details.open;
    (details.open ? details.querySelector("[data-digit]") : details.querySelector("summary")).focus();
  };

  const actions = {
    s: skip,
    g: () => document.querySelector("[data-dialog=guidelines]")?.click(),
    p: () => {
      const prompt = document.querySelector("[data-prompt]");
      prompt.open = !prompt.open;
    },
  };

  const digitOf = (event) =>
    /^(?:Digit|Numpad)(\d)$/.exec(event.code)?.[1] ?? (/^\d$/.test(event.key) ? event.key : null);

  document.addEventListener("keydown", (event) => {
    if (
      !form() ||
      event.defaultPrevented ||
      event.altKey ||
      event.ctrlKey ||
      event.metaKey ||
      event.isComposing
    )
      return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Enter") {
      if (event.shiftKey || event.repeat || event.target.matches?.("button, a, summary, textarea, select"))
        return;
      event.preventDefault();
      submit();
      return;
    }
    if (event.shiftKey || event.repeat || typing(event.target) || localStorage.getItem(OFF) === "1") return;
    const digit = digitOf(event);
    const reason = menu("skip")?.open ? menu("skip").querySelector(`[data-digit="${digit}"]`) : null;
    if (reason) {
      event.preventDefault();
      reason.click();
      return;
    }
    if (digit !== null ? rate(digit) : actions[event.key.toLowerCase()]) event.preventDefault();
    if (digit === null) actions[event.key.toLowerCase()]?.();
  });

  document.addEventListener("DOMContentLoaded", () => {
    const box = document.querySelector("[data-single-keys]");
    if (box) {
      box.checked = localStorage.getItem(OFF) !== "1";
      box.addEventListener("change", () => localStorage.setItem(OFF, box.checked ? "0" : "1"));
    }
    const f = form();
    if (!f) return;
    restore();
    tell();
    f.noValidate = true; // we name what is missing ourselves
    f.addEventListener("input", () => {
      tell();
      save();
    });
    f.addEventListener("change", () => {
      tell();
      save();
    });
    f.addEventListener("submit", (event) => {
      if (event.submitter?.name !== "reason" && open()) {
        event.preventDefault();
        submit();
      } else if (f.dataset.home) {
        event.preventDefault();
        send(f, event.submitter);
      }
    });
    document.getElementById("pair-title").focus({ preventScroll: true });
  });
})();
