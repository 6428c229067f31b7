/* What happens around a swap (focus, announcement, scroll), the folded prompt, and on a phone one
   answer at a time, by tab or swipe, each with its own place. There nothing is chosen before both
   were on the screen: the first press opens the other answer. */
(() => {
  const concord = (window.concord ??= {});
  const FOLDED = "concord.label.prompt-folded";
  const phone = matchMedia("(max-width: 45rem)");

  // Where each answer of this pair was left. One that was not open yet starts at its beginning.
  let left = {};
  let opened = new Set();
  const beginning = (panes) =>
    panes.getBoundingClientRect().top +
    scrollY -
    document.querySelector(".sight").getBoundingClientRect().height;

  const show = (side) => {
    const panes = document.querySelector("[data-panes]");
    if (!panes) return;
    const before = panes.dataset.shown;
    if (before && before !== side) left[before] = scrollY;
    panes.dataset.shown = side;
    opened.add(side);
    if (before && before !== side)
      scrollTo(0, left[side] ?? Math.min(scrollY, Math.max(0, beginning(panes))));
    document.querySelectorAll("[data-pane]").forEach((tab) => {
      const selected = tab.dataset.pane === side;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
    });
  };

  const arrange = () => {
    const panes = document.querySelector("[data-panes]");
    if (!panes) {
      toLastTurn();
      return;
    }
    document.querySelector("[data-pane-tabs]").hidden = !phone.matches;
    if (phone.matches) show(panes.dataset.shown || "left");
    else delete panes.dataset.shown;
    document.querySelectorAll(".pane").forEach((pane) => {
      if (phone.matches) pane.setAttribute("role", "tabpanel");
      else pane.removeAttribute("role");
    });
    const prompt = document.querySelector("[data-prompt]");
    if (prompt) prompt.open = sessionStorage.getItem(FOLDED) !== "1";
    toLastTurn();
  };

  // A conversation opens at its last turn, which is what the answers answer.
  const toLastTurn = () => {
    const box = document.querySelector("[data-conversation]");
    const turn = box?.lastElementChild;
    if (turn && box.scrollHeight > box.clientHeight) box.scrollTop = turn.offsetTop - box.offsetTop;
  };

  concord.panes = { toLastTurn };

  const arrived = () => {
    left = {};
    opened = new Set();
    arrange();
    scrollTo(0, 0);
    const title = document.getElementById("pair-title");
    title?.focus({ preventScroll: true });
    const region = document.getElementById("announce");
    if (region && title) region.textContent = title.textContent.replace(/\s+/g, " ").trim();
  };

  document.addEventListener("DOMContentLoaded", () => {
    arrange();
    const first = document.querySelector("#pair [autofocus]") ?? document.getElementById("pair-title");
    first?.focus({ preventScroll: true });
  });
  phone.addEventListener("change", arrange);
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id !== "pair") return;
    arrived();
    document.dispatchEvent(new CustomEvent("label:shown"));
  });

  document.addEventListener("click", (event) => {
    const tab = event.target.closest("[data-pane]");
    if (tab) show(tab.dataset.pane);
  });
  document.addEventListener(
    "click",
    (event) => {
      const unseen = ["left", "right"].find((side) => !opened.has(side));
      if (!unseen || !phone.matches || !event.target.closest?.("#pair .choice")) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      document.querySelectorAll("[data-extra][open]").forEach((menu) => {
        menu.open = false;
      });
      show(unseen);
      const letter = unseen === "left" ? "A" : "B";
      const said = gettext("Here is answer %(letter)s, which was not open yet. Read it, then choose.");
      const text = interpolate(said, { letter }, true);
      concord.answer?.say(text);
      const region = document.getElementById("announce");
      if (region) region.textContent = text;
    },
    true,
  );
  document.addEventListener(
    "keydown",
    (event) => {
      const tab = event.target.closest?.("[data-pane]");
      if (!tab || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      const side = tab.dataset.pane === "left" ? "right" : "left";
      show(side);
      document.querySelector(`[data-pane="${side}"]`).focus();
    },
    true,
  );
  document.addEventListener(
    "toggle",
    (event) => {
      if (event.target.matches?.("[data-prompt]")) {
        sessionStorage.setItem(FOLDED, event.target.open ? "0" : "1");
        if (event.target.open) toLastTurn();
      }
    },
    true,
  );

  // --- swipe between the answers
  let from = null;
  document.addEventListener(
    "touchstart",
    (event) => {
      const inside =
        event.target.closest("[data-panes]") && !event.target.closest("pre, .scroll, .math.display");
      from =
        inside && event.touches.length === 1 ? [event.touches[0].clientX, event.touches[0].clientY] : null;
    },
    { passive: true },
  );
  document.addEventListener(
    "touchend",
    (event) => {
      if (!from || !phone.matches) return;
      const dx = event.changedTouches[0].clientX - from[0];
      const dy = event.changedTouches[0].clientY - from[1];
      if (Math.abs(dx) > 60 && Math.abs(dx) > 2 * Math.abs(dy)) show(dx < 0 ? "right" : "left");
      from = null;
    },
    { passive: true },
  );
})();

/* Where the window is high enough each answer scrolls in its own pane. Linked, they move together
   in proportion, so that both ends meet; a short answer beside a long one simply stays. Keys that
   scroll a page scroll the panes when nothing else that scrolls has the focus. */
(() => {
  const concord = (window.concord ??= {});
  let linked = true;
  let last = null; // the pane that was scrolled or pointed at last
  const echo = new WeakMap(); // where a pane was moved by us, so that its event is not followed

  const panes = () => [...document.querySelectorAll("[data-panes] > .pane")];
  const room = (pane) => pane.scrollHeight - pane.clientHeight;

  document.addEventListener(
    "scroll",
    (event) => {
      const pane = event.target;
      if (!pane.matches?.("[data-panes] > .pane")) return;
      if (echo.get(pane) === Math.round(pane.scrollTop)) {
        echo.delete(pane);
        return;
      }
      last = pane;
      if (!linked || room(pane) < 1) return;
      const share = pane.scrollTop / room(pane);
      for (const other of panes()) {
        if (other === pane || room(other) < 1) continue;
        const before = Math.round(other.scrollTop);
        other.scrollTop = share * room(other);
        if (Math.round(other.scrollTop) !== before) echo.set(other, Math.round(other.scrollTop));
      }
    },
    { capture: true, passive: true },
  );

  for (const name of ["pointerover", "focusin"]) {
    document.addEventListener(
      name,
      (event) => {
        last = event.target.closest?.("[data-panes] > .pane") ?? last;
      },
      { passive: true },
    );
  }

  const steps = {
    ArrowUp: () => -48,
    ArrowDown: () => 48,
    PageUp: (pane) => -0.9 * pane.clientHeight,
    PageDown: (pane) => 0.9 * pane.clientHeight,
    " ": (pane, back) => (back ? -0.9 : 0.9) * pane.clientHeight,
    Home: () => -Infinity,
    End: () => Infinity,
  };
  document.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.shiftKey && event.key !== " ") return;
    if (
      event.target.closest("input, textarea, select, .pane, .prompt-text, details.menu, dialog, [role=tab]")
    )
      return;
    if (event.key === " " && event.target.closest("a, button, summary")) return;
    if (document.querySelector("dialog:modal")) return;
    const able = panes().filter(
      (pane) => pane.offsetParent && room(pane) > 1 && getComputedStyle(pane).overflowY === "auto",
    );
    if (!able.length) return;
    // together: the one with more to show leads; apart: the one in mind, or the first that can
    const pane = linked
      ? able.reduce((a, b) => (room(b) > room(a) ? b : a))
      : able.includes(last)
        ? last
        : able[0];
    const to = Math.max(0, Math.min(room(pane), pane.scrollTop + step(pane, event.shiftKey)));
    event.preventDefault();
    pane.scrollTop = to;
  });

  concord.scrolling = {
    link: (on) => {
      linked = on;
    },
  };
})();

/* Where one was in a pair: how far each text was scrolled, which answer a phone showed, whether the
   warning was open. Kept in this browser for the last pairs, so that a half-read one comes back as
   it was left. What was entered is a draft (delivery.js). */
(() => {
  const KEPT = "concord.places";
  const MOST = 20; // pairs
  const SCROLLED = ".prompt-text, [data-panes] > .pane";
  const name = () => document.querySelector("form[data-answer-form]")?.dataset.answerForm;
  const all = () => {
    try {
      return JSON.parse(localStorage.getItem(KEPT)) ?? [];
    } catch {
      return [];
    }
  };

  let timer = 0;
  const save = () => {
    const id = name();
    if (!id) return;
    const place = {
      y: scrollY,
      texts: [...document.querySelectorAll(SCROLLED)].map((box) => box.scrollTop),
      side: document.querySelector("[data-panes]")?.dataset.shown,
      open: Boolean(document.querySelector("[data-cover]")?.open),
    };
    const others = all().filter(([other]) => other !== id);
    localStorage.setItem(KEPT, JSON.stringify([...others, [id, place]].slice(-MOST)));
  };
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(save, 200);
  };

  const restore = () => {
    const place = all().find(([id]) => id === name())?.[1];
    if (!place) return;
    const cover = document.querySelector("[data-cover]");
    if (cover) cover.open = place.open;
    if (place.side === "right") document.querySelector("[data-pane=right]:not([hidden])")?.click();
    document.querySelectorAll(SCROLLED).forEach((box, i) => {
      box.scrollTop = place.texts[i] ?? 0;
    });
    scrollTo(0, place.y);
  };

  // after everything else has arranged itself, formulas too
  const begin = () => requestAnimationFrame(() => requestAnimationFrame(restore));
  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("label:shown", begin);
  document.addEventListener("scroll", soon, { capture: true, passive: true });
  document.addEventListener("toggle", (event) => event.target.matches?.("[data-cover]") && soon(), true);
  document.addEventListener("click", (event) => event.target.closest?.("[data-pane]") && soon());
})();
