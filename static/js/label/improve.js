/* The editor for a better version of the better answer: opened deliberately, filled with that
   answer's source, sent only when it was changed. */
(() => {
  const concord = (window.concord ??= {});
  const HELP =
    "Markdown. Kept with your answer as a response written by a person; models may be trained on it.";
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
      ? `Your version of answer ${LETTER[p.box.dataset.from]}`
      : "Improve the better answer";
    p.tools.hidden = !p.box.dataset.from;
    p.tools.querySelector("[data-improve-again] span").textContent = better
      ? `Start again from ${LETTER[side]}`
      : "Start again";
    if (better && p.box.dataset.from && p.box.dataset.from !== side) {
      p.help.textContent = `You wrote this from answer ${LETTER[p.box.dataset.from]}, and chose ${LETTER[side]}. It is kept as your version of ${LETTER[side]}; start again if you meant that one.`;
    } else
      p.help.textContent = p.text.readOnly
        ? "Choose the better answer, A or B: its text appears here."
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
      concord.answer.say("Choose the better answer first, A or B; its text appears in the editor.");
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
    const p = parts(event.detail.elt.closest?.("form[data-ballot]"));
    if (p && !changed(p) && event.detail.parameters.has?.("improvement"))
      event.detail.parameters.set("improvement", "");
  });

  const missing = (f, side) => {
    const p = parts(f);
    if (!p || side in LETTER || !changed(p)) return null;
    return {
      text: "Your version improves A or B: choose which is better, or leave the version out.",
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
