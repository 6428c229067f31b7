/* The words that one answer has and the other has not, marked in what is shown (rendered or raw).
   A formula counts as one word. Time is bounded: two answers too long or too different to compare
   are left unmarked, and that is said. */
(() => {
  const WORD =
    /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}]|[\p{L}\p{M}\p{N}_]+(?:['’][\p{L}\p{M}\p{N}_]+)*|\S/gu;
  const MOST_WORDS = 60_000; // of both answers
  const LONGEST = 200; // ms
  const LEAST_SHARED = 0.2; // of the words; below, marks would be confetti
  const concord = (window.concord ??= {});

  // --- words of a pane as {node, from, to, text}; a formula as {element, text}
  const words = (pane) => {
    const found = [];
    const walker = document.createTreeWalker(pane, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (node) => {
      if (node.nodeType === Node.TEXT_NODE) return NodeFilter.FILTER_ACCEPT;
      if (node.matches(".math")) return NodeFilter.FILTER_ACCEPT;
      return node.matches("h2, .who, [hidden], template") || node.parentElement.closest(".math")
        ? NodeFilter.FILTER_REJECT
        : NodeFilter.FILTER_SKIP;
    });
    while (walker.nextNode()) {
      const node = walker.currentNode;
      if (node.nodeType === Node.ELEMENT_NODE)
        found.push({ element: node, text: node.dataset.source ?? node.textContent });
      else if (!node.parentElement.closest(".math")) {
        for (const match of node.data.matchAll(WORD))
          found.push({ node, from: match.index, to: match.index + match[0].length, text: match[0] });
      }
    }
    return found;
  };

  // A word or two in common between longer differences says nothing: they differ there.
  const settled = (changes) =>
    changes.map((change, i) => {
      if (change.added || change.removed || change.value.length > 2) return change;
      const beside = (step) => {
        let n = 0;
        for (let j = i + step; changes[j]?.added || changes[j]?.removed; j += step)
          n += changes[j].value.length;
        return n;
      };
      return beside(-1) >= 4 && beside(1) >= 4 ? { ...change, both: true } : change;
    });

  const mark = (list) => {
    // neighbours in one text node make one mark; from the end, so that positions stay right
    for (let last = list.length - 1; last >= 0; last -= 1) {
      const word = list[last];
      if (word.element) {
        word.element.classList.add("only");
        continue;
      }
      let first = last;
      while (first > 0 && list[first - 1].node === word.node && list[first - 1].at === list[first].at - 1)
        first -= 1;
      const range = document.createRange();
      range.setStart(word.node, list[first].from);
      range.setEnd(word.node, word.to);
      const element = document.createElement("mark");
      element.className = "only";
      range.surroundContents(element);
      last = first;
    }
  };

  const clear = () => {
    document.querySelectorAll(".panes mark.only").forEach((element) => {
      const parent = element.parentNode;
      element.replaceWith(...element.childNodes);
      parent.normalize();
    });
    document.querySelectorAll(".panes .math.only").forEach((element) => element.classList.remove("only"));
  };

  const { lang } = document.documentElement;
  const said = (text, values) => interpolate(text, values, true);
  const count = (n) => said(ngettext("%(n)s word", "%(n)s words", n), { n: n.toLocaleString(lang) });

  /* Marks both panes and says in a sentence what was found. */
  const show = () => {
    clear();
    const [left, right] = ["left", "right"].map((side) =>
      document.querySelector(`[data-panes] [data-side=${side}]`),
    );
    if (!left || !right) return "";
    const [a, b] = [words(left), words(right)];
    a.forEach((word, i) => {
      word.at = i;
    });
    b.forEach((word, i) => {
      word.at = i;
    });
    if (a.length + b.length > MOST_WORDS)
      return said(gettext("Too long to compare: %(words)s. Nothing is marked."), {
        words: count(a.length + b.length),
      });
    const found = window.Diff.diffArrays(
      a.map((word) => word.text),
      b.map((word) => word.text),
      { timeout: LONGEST },
    );
    if (!found) return gettext("Too long and too different to compare. Nothing is marked.");
    const changes = settled(found);
    const only = { a: [], b: [] };
    let [i, j, shared] = [0, 0, 0];
    for (const { added, removed, both, value } of changes) {
      if (!added) {
        if (removed || both) only.a.push(...a.slice(i, i + value.length));
        i += value.length;
      }
      if (!removed) {
        if (added || both) only.b.push(...b.slice(j, j + value.length));
        j += value.length;
      }
      if (!added && !removed && !both) shared += value.length;
    }
    if (!only.a.length && !only.b.length) return gettext("The two answers have the same words.");
    const share = (2 * shared) / (a.length + b.length);
    if (share < LEAST_SHARED)
      return said(gettext("Too different to compare: %(share)s of the words in common. Nothing is marked."), {
        share: `${Math.round(100 * share)} %`,
      });
    mark(only.a);
    mark(only.b);
    return said(gettext("Marked: %(a)s only in A, %(b)s only in B."), {
      a: count(only.a.length),
      b: count(only.b.length),
    });
  };

  concord.difference = { show, clear };
})();

/* The three ways to look at a pair, each kept on this device: differences marked, raw text instead
   of rendered, panes that scroll together. Nothing is fetched: the raw text comes with the pair. */
(() => {
  const concord = (window.concord ??= {});
  const DEFAULTS = { diff: false, raw: false, linked: true };
  // biome-ignore-start lint/suspicious/noControlCharactersInRegex: they are what is looked for
  // The same characters that the server names in rendered text; see apps/labeling/rendering/maths.py.
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
