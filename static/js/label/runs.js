/* Runs of agents: steps are gone through by keys, folded parts opened, the first wrong step marked;
   what was never opened is told with the answer. */
(() => {
  const concord = (window.concord ??= {});
  const shown = () => [...document.querySelectorAll("[data-runs] .pane")].filter((pane) => pane.offsetParent);
  const current = () => document.activeElement?.closest?.("[data-runs] [data-step]");
  const visible = (step) => step.offsetParent !== null;

  // The steps of the pane one is in, equal ones that are folded left out.
  const go = (by) => {
    const from = current();
    const pane = from?.closest(".pane") ?? document.activeElement?.closest?.(".pane") ?? shown()[0];
    if (!pane) return;
    const steps = [...pane.querySelectorAll("[data-step]")].filter(visible);
    const first = steps.findIndex((step) => step.classList.contains("differs-first"));
    const at = from ? steps.indexOf(from) + by : Math.max(0, first);
    const step = steps[Math.min(Math.max(at, 0), steps.length - 1)];
    step?.focus({ preventScroll: true });
    step?.scrollIntoView({ block: "nearest" });
  };

  // The parts of this step: all open, or all closed where they were.
  const open = () => {
    const parts = [...(current()?.querySelectorAll("[data-part], .thought") ?? [])];
    const to = parts.some((part) => !part.open);
    for (const part of parts) part.open = to;
  };

  const wrong = () => {
    const step = current();
    if (!step) {
      document.querySelector("[data-first-error]")?.focus();
      return;
    }
    const select = document.querySelector(`[data-first-error="${step.dataset.side}"]`);
    if (!select) return;
    select.value = select.value === step.dataset.step ? "" : step.dataset.step;
    select.dispatchEvent(new Event("change", { bubbles: true }));
    mark();
  };

  const mark = () => {
    for (const select of document.querySelectorAll("[data-first-error]")) {
      for (const step of document.querySelectorAll(
        `[data-runs] [data-side="${select.dataset.firstError}"][data-step]`,
      ))
        step.classList.toggle("first-wrong", step.dataset.step === select.value);
    }
  };

  // Folded parts by their step, until somebody opens one of it.
  let unopened = new Map();
  const tell = () => {
    const field = document.querySelector("[data-unopened]");
    if (field) field.value = [...unopened.keys()].join(" ");
  };
  const nameOf = (part) => {
    const step = part.closest("[data-step]");
    return step && step.dataset.side !== "prompt" ? `${step.dataset.side}:${step.dataset.step}` : "";
  };
  const begin = () => {
    unopened = new Map();
    for (const part of document.querySelectorAll("[data-runs] [data-part]")) {
      const name = nameOf(part);
      if (name) unopened.set(name, true);
    }
    tell();
    mark();
  };

  document.addEventListener(
    "toggle",
    (event) => {
      if (!event.target.matches?.("[data-part]") || !event.target.open) return;
      if (unopened.delete(nameOf(event.target))) tell();
    },
    true,
  );
  document.addEventListener("change", (event) => {
    if (event.target.matches?.("[data-first-error]")) mark();
  });
  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("label:shown", begin);

  concord.runs = { go, open, wrong };
})();
