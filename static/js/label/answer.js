/* Giving an answer. Where a choice alone is a complete answer, pressing it sends it. Where the
   project requires more, or an answer is being improved, pressing it marks it, what is missing is
   named and focused, and Enter sends. */
(() => {
  const SETTLE = 250; // ms after a swap in which a press cannot have been meant for the new pair
  const DOUBLE = 600; // the same for the second half of a double click
  const concord = (window.concord ??= {});
  let shownAt = -Infinity;

  const form = () => document.querySelector("form[data-answer-form]");
  const submitter = (f = form()) => f?.querySelector("[data-submit]");
  const chosen = (f = form()) => (f?.querySelector(".choice[aria-pressed=true]")?.value ?? "").split("-")[0];
  const deliberate = (f) => !("oneKey" in f.dataset) || Boolean(concord.improve?.on(f));
  const settled = () => performance.now() - shownAt >= SETTLE;

  const say = (text) => {
    const place = document.querySelector("[data-need]");
    if (!place) return;
    place.textContent = text;
    place.hidden = !text;
  };

  const answered = (row) => Boolean(row.querySelector(":checked"));

  // --- what is missing: {text, focus} or null
  const missing = (f) => {
    const rows = [...f.querySelectorAll("[data-criterion][data-required]")];
    const row = rows.find((one) => !answered(one));
    if (row) {
      const text = interpolate(gettext("Judge “%(name)s” too."), { name: row.dataset.criterion }, true);
      return { text, focus: row.querySelector("input") };
    }
    const why = f.querySelector("[data-why][data-required]");
    if (why && !answered(why) && !why.querySelector("textarea").value.trim()) {
      const text = gettext("Say why: choose a reason or write one.");
      return { text, focus: why.querySelector("input, textarea") };
    }
    return concord.improve?.missing(f, chosen(f)) ?? null;
  };

  const mark = (f, value) => {
    f.querySelectorAll(".choice").forEach((one) =>
      one.setAttribute("aria-pressed", String(one.value === value)),
    );
    const button = submitter(f);
    button.value = value;
    button.hidden = !value;
    f.dispatchEvent(new CustomEvent("label:marked", { bubbles: true }));
  };

  // Where one continues after marking or judging a row.
  const forward = (f) => {
    if (!chosen(f)) {
      document.getElementById("pair-title")?.focus({ preventScroll: true });
      return;
    }
    const lacks = missing(f);
    say(lacks ? lacks.text : "");
    (lacks?.focus ?? submitter(f)).focus();
  };

  const choose = (button) => {
    const f = form();
    if (f && settled()) button.click();
  };

  const submit = () => {
    const f = form();
    if (!f || !settled()) return;
    if (!chosen(f)) {
      say(
        f.querySelector(".choice[value=tie]")
          ? gettext("Choose first: A or B, or a tie.")
          : gettext("Choose first: A or B."),
      );
      document.getElementById("pair-title")?.focus({ preventScroll: true });
      return;
    }
    submitter(f).click();
  };

  // --- clicks: before htmx and the browser see them
  document.addEventListener(
    "click",
    (event) => {
      const button = event.target.closest?.(".choice, [data-submit]");
      const f = button?.form;
      if (!f?.matches("[data-answer-form]")) return;
      const stop = () => {
        event.preventDefault();
        event.stopImmediatePropagation();
      };
      if (document.querySelector("[data-cover]:not([open])")) {
        stop();
        say(gettext("Open the pair first (O), or skip it."));
        return;
      }
      const age = performance.now() - shownAt;
      if (age < SETTLE || (event.detail > 1 && age < DOUBLE)) {
        stop();
        return;
      }
      if (button.matches(".choice") && deliberate(f)) {
        stop();
        mark(f, button.value);
        forward(f);
        return;
      }
      f.querySelectorAll(".choice.pressed").forEach((other) => other.classList.remove("pressed"));
      if (!button.matches("[data-submit]")) {
        button.classList.add("pressed");
        return;
      }
      const lacks = missing(f);
      if (lacks) {
        stop();
        say(lacks.text);
        lacks.focus?.focus();
      }
    },
    true,
  );

  // A criterion that is not required can be taken back by pressing it again.
  let again = null;
  document.addEventListener("pointerdown", (event) => {
    again = event.target.closest?.(".tick")?.querySelector("input:checked:not([required])") ?? null;
  });
  document.addEventListener("click", (event) => {
    if (!again || event.target !== again) return;
    again.checked = false;
    again.dispatchEvent(new Event("change", { bubbles: true }));
    again = null;
  });

  document.addEventListener(
    "toggle",
    (event) => event.target.matches?.("[data-cover][open]") && say(""),
    true,
  );

  // What was missing may be there now.
  document.addEventListener("change", (event) => {
    const f = event.target.closest?.("form[data-answer-form]");
    const place = document.querySelector("[data-need]");
    if (f && place && !place.hidden) say(chosen(f) ? (missing(f)?.text ?? "") : place.textContent);
  });

  // A mark on the closed menu when something is set in it.
  const marks = () => {
    const menu = document.querySelector("[data-extra=note]");
    const set =
      menu &&
      ([...menu.querySelectorAll("input:checked")].length > 0 ||
        Boolean(menu.querySelector("textarea")?.value.trim()));
    menu?.querySelector("[data-has]")?.toggleAttribute("hidden", !set);
    const rows = [...document.querySelectorAll("[data-criterion]")];
    const line = document.querySelector("[data-criteria-set]"); // where the rows are out of sight
    if (line) {
      const text = ngettext("%(done)s of %(n)s criterion", "%(done)s of %(n)s criteria", rows.length);
      line.textContent = interpolate(text, { done: rows.filter(answered).length, n: rows.length }, true);
    }
  };
  document.addEventListener("input", marks);
  document.addEventListener("change", marks);

  const begin = () => {
    marks();
    const f = form();
    if (f) f.noValidate = true; // we name what is missing ourselves
  };
  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("label:restored", begin);
  document.addEventListener("label:shown", () => {
    shownAt = performance.now();
    begin();
  });

  concord.answer = { form, choose, chosen, mark, submit, forward, say, settled };
})();

/* The editor for a better version of the better answer: opened deliberately, filled with that
   answer's source, sent only when it was changed. */
(() => {
  const concord = (window.concord ??= {});
  const HELP = gettext(
    "Markdown. Kept with your answer as a response written by a person; models may be trained on it.",
  );
  const LETTER = { left: "A", right: "B" };

  const parts = (f) => {
    const box = f?.querySelector("[data-improve]");
    return (
      box && {
        box,
        text: box.querySelector("textarea"),
        help: box.querySelector("[data-improve-help]"),
        title: box.querySelector("[data-improve-title]"),
        tools: box.querySelector("[data-improve-tools]"),
      }
    );
  };
  // What the model wrote: the last turn, which is the one that is rewritten.
  const source = (side) => {
    const turns = document.querySelectorAll(`template[data-raw="${side}"]`);
    return turns.length ? turns[turns.length - 1].content.textContent : "";
  };
  const changed = (p) =>
    p.text.value.trim() !== "" && p.text.value.trim() !== source(p.box.dataset.from ?? "").trim();
  const on = (f) => {
    const p = parts(f);
    return Boolean(p && (p.box.open || changed(p)));
  };

  const fill = (p, side) => {
    p.box.dataset.from = side;
    p.text.value = source(side);
    p.text.setSelectionRange(0, 0);
    p.text.dispatchEvent(new Event("input", { bubbles: true }));
  };

  const show = (f) => {
    const p = parts(f);
    if (!p) return;
    const side = concord.answer.chosen(f);
    const better = side in LETTER;
    const from = p.box.dataset.from;
    if (p.box.open && better && from !== side && !changed(p)) fill(p, side);
    p.text.readOnly = p.box.open && !better && !changed(p);
    p.title.textContent = p.box.dataset.from
      ? interpolate(
          gettext("Your version of answer %(letter)s"),
          { letter: LETTER[p.box.dataset.from] },
          true,
        )
      : gettext("Improve the better answer");
    p.tools.hidden = !p.box.dataset.from;
    p.tools.querySelector("[data-improve-again] span").textContent = better
      ? interpolate(gettext("Start again from %(letter)s"), { letter: LETTER[side] }, true)
      : gettext("Start again");
    if (better && p.box.dataset.from && p.box.dataset.from !== side) {
      p.help.textContent = interpolate(
        gettext(
          "You wrote this from answer %(from)s, and chose %(chosen)s. It is kept as your version of %(chosen)s; start again if you meant that one.",
        ),
        { from: LETTER[p.box.dataset.from], chosen: LETTER[side] },
        true,
      );
    } else
      p.help.textContent = p.text.readOnly
        ? gettext("Choose the better answer, A or B: its text appears here.")
        : HELP;
  };

  const open = () => {
    const f = concord.answer.form();
    const p = parts(f);
    if (!p) return;
    p.box.open = true;
    show(f);
    p.box.scrollIntoView({ block: "center" });
    if (p.text.readOnly)
      concord.answer.say(gettext("Choose the better answer first, A or B; its text appears in the editor."));
    else p.text.focus({ preventScroll: true });
  };

  const drop = (f) => {
    const p = parts(f);
    p.text.value = "";
    delete p.box.dataset.from;
    p.box.open = false;
    p.text.dispatchEvent(new Event("input", { bubbles: true }));
    show(f);
    document.getElementById("pair-title")?.focus({ preventScroll: true });
  };

  document.addEventListener("click", (event) => {
    const f = concord.answer.form();
    if (event.target.closest("[data-improve-open]")) {
      event.preventDefault();
      open();
    } else if (event.target.closest("[data-improve-drop]")) drop(f);
    else if (event.target.closest("[data-improve-again]")) {
      const p = parts(f);
      const side = concord.answer.chosen(f);
      fill(p, side in LETTER ? side : p.box.dataset.from);
      show(f);
      p.text.focus();
    }
  });
  document.addEventListener("label:marked", (event) => show(event.target));
  document.addEventListener(
    "toggle",
    (event) => {
      if (event.target.matches?.("[data-improve]")) show(event.target.closest("form"));
    },
    true,
  );

  // An editor that says nothing new sends nothing.
  document.addEventListener("htmx:configRequest", (event) => {
    const p = parts(event.detail.elt.closest?.("form[data-answer-form]"));
    if (p && !changed(p) && event.detail.parameters.has?.("improvement"))
      event.detail.parameters.set("improvement", "");
  });

  const missing = (f, side) => {
    const p = parts(f);
    if (!p || side in LETTER || !changed(p)) return null;
    return {
      text: gettext("Your version improves A or B: choose which is better, or leave the version out."),
      focus: p.tools.querySelector("[data-improve-drop]"),
    };
  };

  // A stored version belongs to the answer that was chosen with it.
  const begin = () => {
    const f = concord.answer.form();
    const p = parts(f);
    if (!p) return;
    const side = concord.answer.chosen(f);
    if (p.text.value && !p.box.dataset.from && side in LETTER) p.box.dataset.from = side;
    show(f);
  };
  for (const name of ["DOMContentLoaded", "label:shown", "label:restored"])
    document.addEventListener(name, begin);

  concord.improve = { on, open, missing };
})();
