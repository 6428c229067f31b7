/* Keys of the dispute page: next and previous, the ruling, and how the pair is shown. Never while
   someone types; everything is reachable without them. */
(() => {
  const typing = (target) =>
    target.closest?.("textarea, select, [contenteditable=true], input:not([type=radio])");
  const form = document.getElementById("ruling");
  const adjudicate = form?.querySelector("[data-adjudicate]");

  // What is missing is said at its field, and one is led there.
  const missing = (field) => field.querySelector("input") && !field.querySelector(":checked");
  form?.addEventListener("submit", (event) => {
    if (event.submitter && event.submitter !== adjudicate) return;
    const wanting = [...form.querySelectorAll("[data-needed]")].filter(missing);
    for (const field of wanting) {
      field.classList.add("invalid");
      field.querySelector(".error").textContent = field.dataset.needed;
    }
    if (!wanting.length) return;
    event.preventDefault();
    wanting[0].querySelector("input").focus();
  });
  form?.addEventListener("change", (event) => {
    const field = event.target.closest("[data-needed]");
    if (!field) return;
    field.classList.remove("invalid");
    field.querySelector(".error").textContent = "";
  });

  const open = (selector, inside) => {
    const menu = form?.querySelector(selector);
    if (!menu) return;
    menu.open = true;
    menu.querySelector(inside)?.focus();
  };
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    if (event.key === "Enter") {
      if (!adjudicate || event.target.closest("a, button, summary")) return;
      event.preventDefault();
      form.requestSubmit(adjudicate);
      return;
    }
    const digit = /^(?:Digit|Numpad)(\d)$/.exec(event.code)?.[1];
    const key = digit ?? event.key.toLowerCase();
    const wanted = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
    const toggle = { d: "diff", v: "raw", l: "linked" }[key];
    if (wanted?.matches("input")) {
      wanted.checked = true;
      wanted.dispatchEvent(new Event("change", { bubbles: true }));
      wanted.focus({ preventScroll: true });
    } else if (wanted) wanted.click();
    else if (toggle) document.querySelector(`[data-toggle="${toggle}"]`)?.click();
    else if (key === "c") open("[data-comment]", "textarea");
    else if (key === "m") open(".acts", "button");
    else if (key === "p") {
      const prompt = document.querySelector("[data-prompt]");
      if (prompt) prompt.open = !prompt.open;
    } else return;
    event.preventDefault();
  });
})();
