/* Keys of verdicts: 1 to 5 press the buttons of the answer one is at, u takes the last one back, j and
   k go to the next and the previous answer. Never while someone types; everything is reachable
   without them. Where many answers are on the page, the current card is the one with the focus. */
(() => {
  const typing = (target) => target.closest?.("textarea, select, input, [contenteditable=true]");
  const cards = () => [...document.querySelectorAll("[data-card]")];
  const here = () => document.activeElement?.closest?.("[data-card]");

  const move = (by) => {
    const all = cards();
    const at = all.indexOf(here());
    const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
    if (!next) return;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "start" });
  };

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    const key = /^(?:Digit|Numpad)(\d)$/.exec(event.code)?.[1] ?? event.key.toLowerCase();
    const many = cards().length > 1;
    const selector = `[data-key="${CSS.escape(key)}"]:not(:disabled)`;
    const wanted = here()?.querySelector(selector) ?? (many ? null : document.querySelector(selector));
    if (wanted) wanted.click();
    else if (many && (key === "j" || key === "k")) move(key === "j" ? 1 : -1);
    else return;
    event.preventDefault();
  });

  // A verdict replaces the buttons that were pressed, and a live run its whole list: the focus stays
  // at the answer, or goes to the next one where that has come.
  let card = "";
  document.addEventListener("focusin", () => {
    card = here()?.id || card;
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    const next = event.detail.elt?.querySelector?.("[data-focus]");
    if (next) {
      next.focus({ preventScroll: true });
      next.closest("[data-card]")?.scrollIntoView({ block: "nearest" });
    } else if (card && document.activeElement === document.body)
      document.getElementById(card)?.focus({ preventScroll: true });
  });
})();
