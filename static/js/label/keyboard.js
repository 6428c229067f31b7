/* The keys of the label screen: each is printed on its button, none works while someone types, and
   all can be switched off in the list of shortcuts (WCAG 2.1.4). */
(() => {
  "use strict";
  const OFF = "concord.label.single-keys-off";
  const SETTLE = 250; // ms after a swap in which a key cannot have been meant for the new pair
  let shownAt = 0;

  const typing = (target) =>
    target.closest?.("textarea, select, [contenteditable=true], input:not([type=checkbox], [type=radio], [type=button])");
  const menu = (key) => document.querySelector(`[data-extra="${key}"]`);

  const openMenu = (details, focus) => {
    document.querySelectorAll("[data-extra][open]").forEach((other) => { if (other !== details) other.open = false; });
    details.open = !details.open;
    if (details.open) details.querySelector(focus)?.focus();
    else details.querySelector("summary").focus();
  };

  const press = (button) => {
    if (performance.now() - shownAt < SETTLE) return;
    document.querySelectorAll(".choice.pressed").forEach((other) => other.classList.remove("pressed"));
    button.classList.add("pressed");
    button.click();
  };

  const choiceFor = (event) => {
    const much = event.shiftKey && { Digit1: "!", Digit2: "@" }[event.code];
    const key = much || (event.key.length === 1 ? event.key.toLowerCase() : event.key);
    if (event.shiftKey && !much) return null;
    // arrows scroll what can be scrolled sideways, when the focus is in it
    if (key.startsWith("Arrow") && event.target.closest?.("pre, .scroll")) return null;
    return [...document.querySelectorAll(".choice[data-keys]")].find((button) => button.dataset.keys.split(" ").includes(key));
  };

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape" && !document.querySelector("dialog[open], details.menu[open]")) {
      document.querySelector("[data-keep]")?.click();
      return;
    }
    if (event.repeat || typing(event.target) || localStorage.getItem(OFF) === "1") return;
    if (document.querySelector("dialog[open]")) return;

    const skipping = menu("s")?.open;
    const reason = skipping && document.querySelector(`[data-extra="s"] [data-digit="${event.key}"]`);
    if (reason) { event.preventDefault(); reason.click(); return; }
    if (skipping && event.key.startsWith("Arrow")) return;

    const key = event.key.toLowerCase();
    if (!event.shiftKey) {
      const action = {
        s: () => menu("s") && openMenu(menu("s"), "[data-digit]"),
        r: () => menu("r") && openMenu(menu("r"), "textarea"),
        z: () => document.querySelector("[data-undo]")?.click(),
        g: () => document.querySelector("[data-dialog=guidelines]")?.click(),
        p: () => { const prompt = document.querySelector("[data-prompt]"); if (prompt) prompt.open = !prompt.open; },
      }[key];
      if (action) { event.preventDefault(); action(); return; }
    }
    if (skipping) return;
    const button = choiceFor(event);
    if (button) { event.preventDefault(); press(button); }
  });

  document.addEventListener("label:shown", () => { shownAt = performance.now(); });
  document.addEventListener("DOMContentLoaded", () => {
    const box = document.querySelector("[data-single-keys]");
    if (!box) return;
    box.checked = localStorage.getItem(OFF) !== "1";
    box.addEventListener("change", () => localStorage.setItem(OFF, box.checked ? "0" : "1"));
  });
})();
