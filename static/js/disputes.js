/* Keys of the dispute page: next and previous, the choice, and how the pair is shown. Never while
   someone types; everything is reachable without them. */
(() => {
  const typing = (target) =>
    target.closest?.("textarea, select, [contenteditable=true], input:not([type=radio])");
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    const digit = /^(?:Digit|Numpad)(\d)$/.exec(event.code)?.[1];
    const key = digit ?? event.key.toLowerCase();
    const wanted = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (wanted) {
      event.preventDefault();
      if (wanted.matches("input")) {
        wanted.checked = true;
        wanted.focus({ preventScroll: true });
        wanted.closest("form").scrollIntoView({ block: "nearest" });
      } else wanted.click();
      return;
    }
    const toggle = { d: "diff", w: "raw", l: "linked" }[key];
    if (toggle) {
      event.preventDefault();
      document.querySelector(`[data-toggle="${toggle}"]`)?.click();
    } else if (key === "p") {
      event.preventDefault();
      const prompt = document.querySelector("[data-prompt]");
      if (prompt) prompt.open = !prompt.open;
    } else if (key === "r") {
      event.preventDefault();
      const form = document.getElementById("ruling");
      form?.scrollIntoView({ block: "start" });
      document.getElementById("rule-title")?.focus({ preventScroll: true });
    }
  });
})();
