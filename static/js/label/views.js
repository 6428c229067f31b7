/* The three ways to look at a pair, each kept on this device: differences marked, raw text instead
   of rendered, panes that scroll together. Nothing is fetched: the raw text comes with the pair. */
(() => {
  const concord = (window.concord ??= {});
  const DEFAULTS = { diff: false, raw: false, linked: true };
  // biome-ignore-start lint/suspicious/noControlCharactersInRegex: they are what is looked for
  // The same characters that the server names in rendered text; see apps/labeling/escaping.py.
  const UNSEEN =
    /[\u202a-\u202e\u2060-\u206f\ufff9-\ufffb\u0001-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]|[\u{e0000}-\u{e007f}]/gu;
  // biome-ignore-end lint/suspicious/noControlCharactersInRegex: they are what is looked for
  const kept = (name) => `concord.label.${name}`;
  const is = (name) => (localStorage.getItem(kept(name)) ?? String(DEFAULTS[name])) === "true";

  const named = (text) =>
    text.replace(UNSEEN, (char) => `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
  const source = (turn) =>
    turn.querySelector("template[data-raw]")?.content.textContent ??
    turn.querySelector(".prose").textContent.replace(/\n$/, "");

  // --- raw: what was written, character by character
  const raw = (on) => {
    document.querySelectorAll(".panes .turn, .prompt .turn").forEach((turn) => {
      const prose = turn.querySelector(".prose");
      let written = turn.querySelector(".written");
      if (on && !written) {
        written = document.createElement("div");
        written.className = "written";
        written.dir = "auto";
        written.textContent = named(source(turn));
        prose.after(written);
      } else if (!on) written?.remove();
      prose.hidden = on;
    });
  };

  // --- differences, computed after the pair is on the screen
  let pending = 0;
  const diff = () => {
    clearTimeout(pending);
    const place = document.querySelector("[data-diff-said]");
    if (!place) return;
    if (!is("diff")) {
      concord.difference.clear();
      place.textContent = "";
      return;
    }
    place.textContent ||= "\u00a0"; // keeps the line, so that nothing moves when it is filled
    pending = setTimeout(() => {
      if (concord.maths.busy()) return; // label:typeset comes
      place.textContent = concord.difference.show();
    });
  };

  const apply = () => {
    const tools = document.querySelector("[data-pane-tools]");
    if (!tools) return;
    tools.hidden = false;
    for (const name of Object.keys(DEFAULTS)) {
      tools.querySelector(`[data-toggle=${name}]`).setAttribute("aria-pressed", String(is(name)));
    }
    concord.difference.clear();
    raw(is("raw"));
    diff();
    concord.scrolling.link(is("linked"));
  };

  document.addEventListener("click", (event) => {
    const name = event.target.closest("[data-toggle]")?.dataset.toggle;
    if (!(name in DEFAULTS)) return;
    localStorage.setItem(kept(name), String(!is(name)));
    apply();
    if (name === "raw") concord.panes.toLastTurn();
  });
  for (const name of ["DOMContentLoaded", "label:shown"]) document.addEventListener(name, apply);
  document.addEventListener("label:typeset", diff);
  addEventListener("storage", (event) => {
    if (Object.keys(DEFAULTS).some((name) => kept(name) === event.key)) apply();
  });
})();
