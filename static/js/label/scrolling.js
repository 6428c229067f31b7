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
    if (document.querySelector("dialog[open]")) return;
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
